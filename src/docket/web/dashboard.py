"""One dashboard: its dockets, its settings, and what its pages share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from docket.docket import Docket
from docket.settings import is_open

from .asset_files import AssetFiles
from .census_reader import CensusReader
from .entrance import path_of
from .event_stream import EventStream
from .failures import HEAL_SECONDS, Failure, Refused, explain
from .headers import secure
from .jobs import Jobs
from .page import Page
from .pages import PAGES, extend
from .segments import by_segment
from .shared_tap import SharedTap
from .templating import environment
from .trace_links import TraceLinks
from .visit import Visit

logger: logging.Logger = logging.getLogger("docket.web")

PROBLEM = "application/problem+json"
# A page whose reads take longer says that the server is slow.
READ_SECONDS = 10.0
# The streams that one process serves.
MOST_STREAMS = 200


class _Shared:
    """What the visitors of one docket share."""

    def __init__(self, docket: Docket) -> None:
        self.jobs: Jobs = Jobs()
        self.reader: CensusReader = CensusReader(docket)
        self.tap: SharedTap = SharedTap(docket)


class Dashboard:
    """The dockets by their segments in URLs, the templates, the assets and the pages."""

    def __init__(self, dockets: Sequence[Docket], *, read_only: bool, traces: TraceLinks | None = None) -> None:
        self.dockets: dict[str, Docket] = by_segment(dockets)
        self.pages: tuple[Page, ...] = PAGES
        self.navigation: tuple[Page, ...] = tuple(page for page in PAGES if page.title is not None)
        self.read_only = read_only
        self.traces = traces
        self.assets: AssetFiles = AssetFiles()
        self.templates: Environment = environment()
        extend(self.templates)
        self._shared: dict[Docket, _Shared] = {docket: _Shared(docket) for docket in dockets}
        self._streams = 0
        self._stopping = asyncio.Event()

    def jobs(self, docket: Docket) -> Jobs:
        """The changes under way on a docket."""
        return self._shared[docket].jobs

    def reader(self, docket: Docket) -> CensusReader:
        """Reads the census of a docket for all its visitors."""
        return self._shared[docket].reader

    def tap(self, docket: Docket) -> SharedTap:
        """Listens to the events of a docket for all its visitors."""
        return self._shared[docket].tap

    def stream(self, events: AsyncGenerator[bytes]) -> EventStream:
        """An answer with events. It raises Refused (503) when it is sent, if there are too many."""
        return EventStream(events, self._stopping, self._room)

    @contextmanager
    def _room(self) -> Generator[None]:
        if self._streams >= MOST_STREAMS:
            raise Refused(503, "too-many-streams", "Too many tabs watch", "Close some of them, or reload later.")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def stop_streams(self) -> None:
        """Ends the streams of all tabs, so that a server that stops need not wait for them."""
        self._stopping.set()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Opens the dockets that are not open. A server that is away does not keep it from
        starting."""
        async with AsyncExitStack() as stack:
            for docket in self.dockets.values():
                if not is_open(docket):
                    await stack.enter_async_context(docket)
            yield

    def find(self, segment: str) -> Docket:
        docket = self.dockets.get(segment)
        if docket is None:
            raise HTTPException(404, f"There is no docket {segment!r} here.")
        return docket

    def visit(self, request: Request) -> Visit:
        """The visit of a page about a docket. Raises HTTPException (404) for an unknown docket."""
        segment = request.path_params["docket"]
        self.find(segment)
        return Visit(self, request, segment)

    def failed(self, request: Request, failure: Failure) -> Response:
        """The answer about a failure: a page, or problem+json below /api."""
        if request.method not in ("GET", "HEAD"):
            # To ask again would be to make the change again.
            failure = replace(failure, heals=False)
        if _is_for_programs(request):
            content: dict[str, Any] = {
                "type": f"urn:docket:problem:{failure.name}",
                "title": failure.title,
                "status": failure.status,
                "detail": failure.detail,
            }
            response: Response = JSONResponse(content, failure.status, media_type=PROBLEM)
        else:
            segment = request.scope.get("path_params", {}).get("docket")
            visit = Visit(self, request, segment if segment in self.dockets else None)
            response = visit.render("error.html", failure.status, failure=failure, seconds=HEAL_SECONDS)
        if failure.heals:
            response.headers["retry-after"] = str(HEAL_SECONDS)
        response.headers.update(failure.headers or {})
        secure(response.headers)
        return response

    async def on_error(self, request: Request, error: Exception) -> Response:
        failure = explain(error)
        try:
            return self.failed(request, failure)
        except Exception:
            logger.exception("the page about an error cannot be shown")
            response = PlainTextResponse(f"{failure.title}\n", failure.status)
            secure(response.headers)
            return response


def in_time(read: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A handler that gives up when the server is too slow. Changes are not cut short."""

    async def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return await read(request)
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await read(request)
        except TimeoutError as error:
            raise TimeoutError(f"it has not answered within {READ_SECONDS:.0f} seconds") from error

    return answer


def _is_for_programs(request: Request) -> bool:
    path = path_of(request)
    return path == "/api" or path.startswith("/api/")
