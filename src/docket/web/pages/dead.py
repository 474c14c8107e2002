"""Dead letters: the kinds, the letters of a kind, and one letter."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.dead.letter import Kind, Overview
from docket.inspection.task import trace_id
from docket.web.page_request import PageRequest, WebPage

SIZE = 50


async def answer(page_request: PageRequest) -> Response:
    overview = await page_request.docket.dead.overview()
    context: dict[str, Any] = {"overview": overview, "now": page_request.docket.now()}
    chosen = page_request.query.get("kind")
    if chosen is None and not page_request.query.get("function"):
        return page_request.render("dead.html", **context)
    kind = _find(overview, chosen)
    filter: dict[str, Any] = {"kind": kind.id} if kind is not None else {"function": page_request.query["function"]}
    page = await _letters(page_request, filter)
    return page_request.render("dead_kind.html", kind=kind, filter=filter, **page, **context)


def _find(overview: Overview, id: str | None) -> Kind | None:
    if id is None:
        return None
    found = next((kind for kind in overview.kinds if kind.id == id), None)
    if found is None:
        raise HTTPException(404, "There are no dead letters of this kind: they were retried, discarded, or expired.")
    return found


async def _letters(page_request: PageRequest, filter: dict[str, Any]) -> dict[str, Any]:
    try:
        page = await page_request.docket.dead.page(cursor=page_request.query.get("after"), size=SIZE, **filter)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    following = page_request.url("dead", after=page.cursor, **filter) if page.cursor is not None else None
    return {"letters": page.letters, "following": following}


async def answer_letter(page_request: PageRequest) -> Response:
    """One letter. Its arguments are shown as far as the producer marked them as `Logged`."""
    try:
        id = int(page_request.query.get("id", ""))
    except ValueError:
        raise HTTPException(404, "The address has no number of a letter.") from None
    letter = await page_request.docket.dead.get(id)
    if letter is None:
        raise HTTPException(404, f"There is no dead letter {id}: it was retried, discarded, or has expired.")
    docket = page_request.docket
    # As the change itself: nothing is unpickled here.
    context: dict[str, Any] = {"trace_id": trace_id(letter.trace), "edits_here": not docket.payloads.may_run_code}
    return page_request.render("letter.html", letter=letter, now=docket.now(), **context)


PAGE = WebPage("dead", answer, "Dead letters")
LETTER_PAGE = WebPage("letter", answer_letter)
