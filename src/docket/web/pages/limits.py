"""The concurrency limits in use: who holds, who waits, for how long."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.docket import Docket
from docket.inspection.limit_views import LimitView, read_limits
from docket.inspection.task_filters import TaskFilter
from docket.inspection.task_pages import find_page
from docket.web.page import Page
from docket.web.visit import Visit

SIZE = 30


async def answer(visit: Visit) -> Response:
    try:
        page = await read_limits(visit.docket, cursor=visit.query.get("after"), size=SIZE)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    values = await asyncio.gather(*(_value(visit.docket, limit) for limit in page.limits))
    return visit.render(
        "limits.html", limits=list(zip(page.limits, values, strict=True)), page_of=page, now=visit.docket.now()
    )


async def _value(docket: Docket, limit: LimitView) -> str | None:
    """The argument that a limit is about. The limit has only its fingerprint; a task that holds or
    waits may show it, if the parameter is `Logged`."""
    keys = [holder.key for holder in limit.holders if holder.key] or [waiter.key for waiter in limit.waiters]
    if limit.parameter is None or not keys:
        return None
    found = await find_page(docket, TaskFilter(key=keys[0]))
    arguments = found.tasks[0].arguments if found.tasks else None
    return (arguments or {}).get(limit.parameter)


PAGE = Page("limits", answer, "Limits")
