"""The stream of a tab: `GET /{docket}/live?page=…`.

It has the counts of the docket, the changes under way, and either the parts of the page that change
or the hint that the page has changed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from docket._aio import cancel_and_wait
from docket.errors import DocketError
from docket.execution.waiting import listening
from docket.model.places import UNFINISHED_PLACES, words_of

from .dashboard import Dashboard
from .page_request import PageRequest, WebPage
from .pages.look import CHOICES
from .problems import Refused
from .streams import TICK_SECONDS, CensusReading, event

# Pages without parts of their own are asked for again this often at most.
CHANGED_SECONDS = 2.0
# A task that reports its progress very often is shown this often.
TOUCHED_SECONDS = 0.3


def live_route(dashboard: Dashboard) -> Route:
    async def answer(request: Request) -> Response:
        page_request = dashboard.page_request(request)
        path = page_request.query.get("page", "")
        page = next((page for page in dashboard.pages if page.path == path), None)
        if page is None:
            raise Refused(404, "not-found", "There is no such page", f"There is no page {path!r}.")
        request.scope["docket.page"] = page.path
        return dashboard.stream(_events(page_request, page))

    return Route("/{docket}/live", answer, methods=["GET"])


async def _events(page_request: PageRequest, page: WebPage) -> AsyncGenerator[bytes]:
    """The events of one tab. Each is sent only if it differs from the one before."""
    reader = page_request.reader
    sent: dict[str, str] = {}
    changed_at, is_stale = 0.0, False
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(reader.watching())
        touched = await stack.enter_async_context(_touches(page_request))
        number = reader.tick.number if reader.tick.census is None else reader.tick.number - 1
        while True:
            tick = await _next(page_request, number, touched)
            is_touched, number = touched.is_set(), max(number, tick.number)
            touched.clear()
            found = {"counts": _counts(tick), "jobs": _jobs(page_request)}
            if page.live is not None and tick.trouble is None:
                found["state"] = await reader.once(_view(page_request), lambda: _parts(page, page_request))
            news = {name: data for name, data in found.items() if data and data != sent.get(name)}
            sent |= news
            now = time.monotonic()
            for name, data in news.items():
                yield event(name, data)
            # A change soon after the last hint is told later, not forgotten.
            is_stale = is_stale or (page.live is None and "counts" in news)
            if is_touched or (is_stale and now - changed_at > CHANGED_SECONDS):
                changed_at, is_stale = now, False
                yield event("changed", "")


async def _next(page_request: PageRequest, number: int, touched: asyncio.Event) -> CensusReading:
    """The next tick, or the present one if the task of the page was touched."""
    waiting = [
        asyncio.create_task(page_request.reader.next_tick(number)),
        asyncio.create_task(touched.wait()),
    ]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(waiting, "docket: the stream goes on")
    return page_request.reader.tick


def _view(page_request: PageRequest) -> tuple[Any, ...]:
    """Tabs with the same view share its HTML. So it depends on the visitor's role, not on the
    name, and on the look that the cookies ask for, not on the other cookies."""
    cookies = page_request.request.cookies
    look = tuple(cookies.get(f"docket-{name}") for name in CHOICES)
    return page_request.root, page_request.request.scope["query_string"], page_request.visitor.role, look


async def _parts(page: WebPage, page_request: PageRequest) -> str:
    assert page.live is not None
    try:
        return await page.live(page_request)
    except (DocketError, TimeoutError):
        # The next tick says what is wrong.
        return ""


def _counts(tick: CensusReading) -> str:
    census = tick.census
    counts: dict[str, Any] = {"trouble": tick.trouble}
    if census is not None:
        counts |= {words_of(place).field: census.at(place) for place in UNFINISHED_PLACES}
        counts |= {"queued": census.queued, "dead": census.dead, "workers": census.workers}
    return json.dumps(counts)


def _jobs(page_request: PageRequest) -> str:
    jobs = page_request.dashboard.jobs(page_request.docket).all()
    return json.dumps([{"title": job.title, "who": job.who, "done": job.done, "total": job.total} for job in jobs])


@asynccontextmanager
async def _touches(page_request: PageRequest) -> AsyncGenerator[asyncio.Event]:
    """Is set when the task that a page is about (`key` in its query) was touched."""
    touched, docket, key = asyncio.Event(), page_request.docket, page_request.query.get("key")
    if key is None:
        yield touched
        return

    async def hear() -> None:
        while True:
            try:
                async with listening(docket, key) as inbox:
                    while True:
                        await inbox.get()
                        touched.set()
                        await asyncio.sleep(TOUCHED_SECONDS)
            except DocketError:
                await asyncio.sleep(TICK_SECONDS)

    hearing = asyncio.create_task(hear(), name=f"{docket.name} - a page about one task")
    try:
        yield touched
    finally:
        await cancel_and_wait([hearing], "docket: the stream is over")
