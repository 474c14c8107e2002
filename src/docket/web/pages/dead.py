"""Dead letters: the kinds, the letters of a kind, and one letter."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.dead import Letter
from docket.dead.overview import Kind, Overview
from docket.web.page import Page
from docket.web.visit import Visit

from .traces import trace_id

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
    letters: list[Letter] = []
    async for letter in visit.docket.dead.find(limit=SIZE + 1, **filter):
        letters.append(letter)
    return {"letters": letters[:SIZE], "following": None}


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
    edits_here = docket.payloads.codec.name == "json" and "pickle" not in docket.accept
    context: dict[str, Any] = {"trace_id": trace_id(letter.trace), "edits_here": edits_here}
    return visit.render("letter.html", letter=letter, now=docket.now(), **context)


PAGE = Page("dead", answer, "Dead letters")
LETTER_PAGE = Page("letter", answer_letter)
