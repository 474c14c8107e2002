"""Lists of tasks: one filter bar, pages, and actions on a selection or on all that match."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from docket.inspection.census import Census, read_census
from docket.inspection.filters import GROUPS, UNFINISHED, TaskFilter, read_filter
from docket.inspection.tasks import find_page
from docket.model.places import RARE_PLACES, Place, words_of
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
    context["places"] = tuple(Place)
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
    groups: list[tuple[str, str, frozenset[Place], int | None]] = [
        ("unfinished", "unfinished", UNFINISHED, census.unfinished),
        *((place, words_of(place).many, frozenset((place,)), _count(place, census)) for place in Place),
        ("finished", "finished", GROUPS["finished"], None),
    ]
    return [
        Chip(
            name,
            words,
            str(replace(chosen, places=places)) or None,
            count,
            chosen.places == places,
        )
        for name, words, places, count in groups
        if count != 0 or name not in RARE_PLACES or chosen.places == places
    ]


def _count(place: Place, census: Census) -> int | None:
    return None if place.is_finished else census.at(place)


PAGE = WebPage("tasks", answer, "Tasks")
