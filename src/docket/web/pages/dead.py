"""Dead letters: the kinds, the letters of a kind, and one letter."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.dead.overview import Kind, Overview
from docket.inspection.task import trace_id
from docket.web.page import Page
from docket.web.visit import Visit

SIZE = 50


async def answer(visit: Visit) -> Response:
    overview = await visit.docket.dead.overview()
    context: dict[str, Any] = {"overview": overview, "now": visit.docket.now()}
    chosen = visit.query.get("kind")
    if chosen is None and not visit.query.get("function"):
        return visit.render("dead.html", **context)
    kind = _find(overview, chosen)
    filter: dict[str, Any] = {"kind": kind.id} if kind is not None else {"function": visit.query["function"]}
    page = await _letters(visit, filter)
    return visit.render("dead_kind.html", kind=kind, filter=filter, **page, **context)


def _find(overview: Overview, id: str | None) -> Kind | None:
    if id is None:
        return None
    found = next((kind for kind in overview.kinds if kind.id == id), None)
    if found is None:
        raise HTTPException(404, "There are no dead letters of this kind: they were retried, discarded, or expired.")
    return found


async def _letters(visit: Visit, filter: dict[str, Any]) -> dict[str, Any]:
    try:
        page = await visit.docket.dead.page(cursor=visit.query.get("after"), size=SIZE, **filter)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    following = visit.url("dead", after=page.cursor, **filter) if page.cursor is not None else None
    return {"letters": page.letters, "following": following}


async def answer_letter(visit: Visit) -> Response:
    """One letter. Its arguments are shown as far as the producer marked them as `Logged`."""
    try:
        id = int(visit.query.get("id", ""))
    except ValueError:
        raise HTTPException(404, "The address has no number of a letter.") from None
    letter = await visit.docket.dead.get(id)
    if letter is None:
        raise HTTPException(404, f"There is no dead letter {id}: it was retried, discarded, or has expired.")
    docket = visit.docket
    # As the change itself: nothing is unpickled here.
    context: dict[str, Any] = {"trace_id": trace_id(letter.trace), "edits_here": not docket.payloads.may_run_code}
    return visit.render("letter.html", letter=letter, now=docket.now(), **context)


PAGE = Page("dead", answer, "Dead letters")
LETTER_PAGE = Page("letter", answer_letter)
