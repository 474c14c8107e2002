"""What happens now: counts and workers."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from docket.web.page import Page
from docket.web.visit import Visit


async def answer(visit: Visit) -> Response:
    docket = visit.docket
    counts, workers = await asyncio.gather(docket.ledger.count(), docket.workers())
    return visit.render("now.html", counts=counts, workers=workers)


PAGE = Page("now", answer, "Now")
