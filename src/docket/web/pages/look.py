"""The frame around every page, and the look that the visitor has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from docket._version import __version__
from docket.settings import is_open
from docket.web.page_request import PageRequest, WebPage

_YEAR = 365 * 24 * 3600
# What a cookie may say, its usual value first. That one is not written into the page.
CHOICES = {"theme": ("system", "light", "dark"), "times": ("relative", "absolute")}
# The second key after "g", and the count beside the name.
_KEYS = {
    "now": "n",
    "tasks": "t",
    "dead": "d",
    "functions": "f",
    "schedule": "s",
    "workers": "w",
    "limits": "l",
    "rules": "p",
    "audit": "a",
}
# Pages that belong to a page of the navigation.
_PARENTS = {"task": "tasks", "letter": "dead"}
_BADGES = {"tasks": "queued", "dead": "dead", "schedule": "scheduled", "workers": "workers"}


@dataclass(frozen=True, slots=True)
class Look:
    theme: str
    times: str
    # The server's clock, by which the browser counts.
    now: datetime
    # The stream of the page's live parts, or None for a page that has none.
    stream: str | None
    server: str
    # The present page, for forms that come back to it.
    back: str
    after: str | None
    first_page: str

    # The page of the navigation that this page belongs to.
    current: str | None
    keys: Mapping[str, str]
    badges: Mapping[str, str]
    version: str = __version__

    @property
    def now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    @property
    def freshness(self) -> str:
        return f"as of {self.now:%H:%M:%S} UTC"

    @property
    def attributes(self) -> Markup:
        """The attributes of the root element."""
        chosen = [(name, getattr(self, name)) for name in CHOICES]
        return Markup("").join(
            Markup(' data-{}="{}"').format(name, value) for name, value in chosen if value != CHOICES[name][0]
        )


def look_of(page_request: PageRequest) -> Look:
    request = page_request.request
    query = list(request.query_params.multi_items())
    path = request.scope.get("docket.page")
    if path is not None:
        # Live parts are made for the stream of the page, whose address has the page in its query.
        query = [(name, value) for name, value in query if name != "page"]
    first = [(name, value) for name, value in query if name != "after"]
    here = request.url.path if path is None else page_request.url(path)
    return Look(
        theme=_choice(page_request, "theme"),
        times=_choice(page_request, "times"),
        now=_now(page_request),
        stream=page_request.url("live", **_stream_query(path, query)) if path is not None else None,
        server=_server(page_request),
        back=_with_query(here, query),
        after=request.query_params.get("after"),
        first_page=_with_query(here, first),
        current=_PARENTS.get(path or "", path),
        keys=_KEYS,
        badges=_BADGES,
    )


def _stream_query(path: str, query: list[tuple[str, str]]) -> dict[str, Any]:
    return {**dict(query), "page": path}


def _with_query(path: str, query: list[tuple[str, str]]) -> str:
    return path + (f"?{urlencode(query, errors='replace')}" if query else "")


def _choice(page_request: PageRequest, name: str) -> str:
    value = page_request.request.cookies.get(f"docket-{name}")
    return value if value is not None and value in CHOICES[name] else CHOICES[name][0]


def _now(page_request: PageRequest) -> datetime:
    if page_request.segment is None or not is_open(page_request.docket):
        return datetime.now(UTC)
    return page_request.docket.now()


def _server(page_request: PageRequest) -> str:
    """The engine, without its address: a viewer need not know that."""
    if page_request.segment is None or not is_open(page_request.docket):
        return ""
    server = page_request.docket.server
    return f"{server.engine_name} {server.engine_version}"


async def answer(page_request: PageRequest) -> Response:
    """Remembers a choice in a cookie, and goes back. It changes nothing on the server, so a viewer
    may do it."""
    response = page_request.redirect(_safe(page_request, page_request.query.get("back")))
    for name, values in CHOICES.items():
        value = page_request.query.get(name)
        if value is not None and value in values:
            response.set_cookie(f"docket-{name}", value, _YEAR, path=f"{page_request.root}/", samesite="lax")
    return response


def _safe(page_request: PageRequest, back: str | None) -> str:
    """Only a page of this dashboard: a link to here must not lead elsewhere."""
    if back is None or not back.startswith(f"{page_request.root}/") or back.startswith("//") or "\\" in back:
        return page_request.url("now")
    return back


PAGE = WebPage("look", answer)
