"""The page with the audit: the changes that people made."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.inspection.audit import read_audit
from docket.web.page_request import PageRequest, WebPage

SIZE = 50


async def answer(page_request: PageRequest) -> Response:
    who, action = page_request.query.get("who") or None, page_request.query.get("action") or None
    try:
        found = await read_audit(
            page_request.docket, cursor=page_request.query.get("after"), size=SIZE, who=who, action=action
        )
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return page_request.render("audit.html", found=found, who=who, action=action, now=page_request.docket.now())


PAGE = WebPage("audit", answer, "Audit")
