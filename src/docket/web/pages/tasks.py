"""Lists of tasks: one filter bar, pages, and actions on a selection or on all that match."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from docket.inspection.census import Census, read_census
from docket.inspection.filters import GROUPS, UNFINISHED, Place, TaskFilter, read_filter
from docket.inspection.tasks import find_page
from docket.web.page_request import PageRequest, WebPage

SIZE = 50


@dataclass(frozen=True, slots=True)
class Chip:
    """A link to the tasks in one place, with the rest of the filter unchanged."""

    name: str
    words: str
    q: str | None
    count: int | None
    is_chosen: bool


async def answer(page_request: PageRequest) -> Response:
    text = page_request.query.get("q", "").strip()
    census = await read_census(page_request.docket)
    context: dict[str, Any] = {"q": text, "census": census, "now": census.taken, "problem": None, "found": None}
    try:
        chosen = read_filter(text)
        context["found"] = await find_page(
            page_request.docket, chosen, cursor=page_request.query.get("after"), size=SIZE
        )
    except ValueError as error:
        context["problem"], chosen = str(error), TaskFilter()
    context |= {"filter": chosen, "chips": _chips(chosen, census)}
    return page_request.render("tasks.html", status=200 if context["problem"] is None else 400, **context)


def _chips(chosen: TaskFilter, census: Census) -> list[Chip]:
    counts: dict[Place, int] = {
        Place.RUNNING: census.running,
        Place.READY: census.ready,
        Place.PARKED: census.parked,
        Place.UNKNOWN_FUNCTION: census.unknown,
        Place.HELD: census.held,
        Place.SCHEDULED: census.scheduled,
    }
    words: dict[str, str] = {Place.PARKED: "wait for a limit", Place.UNKNOWN_FUNCTION: "function unknown"}
    groups: list[tuple[str, frozenset[Place], int | None]] = [("unfinished", UNFINISHED, census.unfinished)]
    groups += [(place, frozenset((place,)), counts.get(place)) for place in Place]
    groups.append(("finished", GROUPS["finished"], None))
    return [
        Chip(
            name,
            words.get(name, name),
            str(replace(chosen, places=places)) or None,
            count,
            chosen.places == places,
        )
        for name, places, count in groups
        # A place that is nearly always empty is shown when it is not.
        if count != 0 or name not in (Place.UNKNOWN_FUNCTION, Place.HELD, Place.PARKED) or chosen.places == places
    ]


PAGE = WebPage("tasks", answer, "Tasks")
