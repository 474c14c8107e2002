"""The names of dockets in URLs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from docket.docket import Docket
from docket.settings import is_open

from .access import path_of, secure
from .jobs import Jobs
from .page_request import PageRequest, WebPage
from .pages import PAGES, extend
from .problems import HEAL_SECONDS, Problem, Refused, explain
from .streams import CensusReader, EventStream, SharedTap
from .templates import AssetFiles, environment

logger: logging.Logger = logging.getLogger("docket.web")

# What follows the root of the dashboard and is not a docket.
RESERVED = ("api", "assets")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def by_segment(dockets: Sequence[Docket]) -> dict[str, Docket]:
    """The dockets by one segment of a path each. A docket's name may contain anything, and two
    dockets on different servers may have the same."""
    found: dict[str, Docket] = {}
    for docket in dockets:
        plain = _UNSAFE.sub("-", docket.name).strip("-") or "docket"
        segment, number = plain, 2
        while segment in found or segment in RESERVED:
            segment, number = f"{plain}-{number}", number + 1
        found[segment] = docket
    return found


PLACE = "{trace_id}"
_HOW = "write it like https://tracing.example/trace/{trace_id}"


@dataclass(frozen=True, slots=True)
class TraceLinks:
    """The address of a trace: a URL in which `{trace_id}` stands for its id.

    Raises ValueError for a text that is not such a URL: a page may contain it as a link.
    """

    url: str

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise TypeError(f"trace_url={self.url!r} is not a text: {_HOW}")
        if any(not "!" <= letter <= "~" for letter in self.url):
            raise ValueError(f"trace_url={self.url!r} has a space or a letter that a URL cannot have: {_HOW}")
        if self.url.count(PLACE) != 1 or set("{}") & set(self.url.replace(PLACE, "")):
            raise ValueError(f"trace_url={self.url!r} needs {PLACE} once, and no other braces: {_HOW}")
        problem = f"trace_url={self.url!r} is not an http or https URL with a host: {_HOW}"
        try:
            parts = urlsplit(self.url)
            is_address = parts.hostname and parts.port != 0 and PLACE not in parts.netloc
        except ValueError:
            raise ValueError(problem) from None
        if not is_address or parts.scheme not in ("http", "https"):
            raise ValueError(problem)
        if parts.username is not None:
            raise ValueError("trace_url has a user name or a password, which everybody would see: leave them out")

    def of(self, trace_id: str) -> str:
        """The address of one trace. The id consists of hexadecimal digits."""
        return self.url.replace(PLACE, trace_id)


PROBLEM = "application/problem+json"
# A page whose reads take longer says that the server is slow.
READ_SECONDS = 10.0
# The streams that one process serves.
MOST_STREAMS = 200


class _Shared:
    """Parts that the visitors of one docket share."""

    def __init__(self, docket: Docket) -> None:
        self.jobs: Jobs = Jobs()
        self.reader: CensusReader = CensusReader(docket)
        self.tap: SharedTap = SharedTap(docket)


class Dashboard:
    """The dockets by their segments in URLs, the templates, the assets and the pages."""

    def __init__(self, dockets: Sequence[Docket], *, read_only: bool, traces: TraceLinks | None = None) -> None:
        self.dockets: dict[str, Docket] = by_segment(dockets)
        self.pages: tuple[WebPage, ...] = PAGES
        self.navigation: tuple[WebPage, ...] = tuple(page for page in PAGES if page.title is not None)
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

    def page_request(self, request: Request) -> PageRequest:
        """The visit of a page about a docket. Raises HTTPException (404) for an unknown docket."""
        segment = request.path_params["docket"]
        self.find(segment)
        return PageRequest(self, request, segment)

    def failed(self, request: Request, problem: Problem) -> Response:
        """The answer about a failure: a page, or problem+json below /api."""
        if request.method not in ("GET", "HEAD"):
            # To ask again would be to make the change again.
            problem = replace(problem, heals=False)
        if _is_for_programs(request):
            content: dict[str, Any] = {
                "type": f"urn:docket:problem:{problem.name}",
                "title": problem.title,
                "status": problem.status,
                "detail": problem.detail,
            }
            response: Response = JSONResponse(content, problem.status, media_type=PROBLEM)
        else:
            segment = request.scope.get("path_params", {}).get("docket")
            page_request = PageRequest(self, request, segment if segment in self.dockets else None)
            response = page_request.render("error.html", problem.status, problem=problem, seconds=HEAL_SECONDS)
        if problem.heals:
            response.headers["retry-after"] = str(HEAL_SECONDS)
        response.headers.update(problem.headers or {})
        secure(response.headers)
        return response

    async def on_error(self, request: Request, error: Exception) -> Response:
        problem = explain(error)
        try:
            return self.failed(request, problem)
        except Exception:
            logger.exception("the page about an error cannot be shown")
            response = PlainTextResponse(f"{problem.title}\n", problem.status)
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
