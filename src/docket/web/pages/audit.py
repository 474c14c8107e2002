"""Who changed what."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.inspection.audit import read_audit
from docket.web.page import Page
from docket.web.visit import Visit

SIZE = 50


async def answer(visit: Visit) -> Response:
    who, action = visit.query.get("who") or None, visit.query.get("action") or None
    try:
        found = await read_audit(visit.docket, cursor=visit.query.get("after"), size=SIZE, who=who, action=action)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return visit.render("audit.html", found=found, who=who, action=action, now=visit.docket.now())


PAGE = Page("audit", answer, "Audit")
