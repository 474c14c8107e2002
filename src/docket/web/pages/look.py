"""What the frame around every page shows, and how the visitor wants pages to look."""

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
from docket.web.page import Page
from docket.web.visit import Visit

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


def look_of(visit: Visit) -> Look:
    request = visit.request
    query = list(request.query_params.multi_items())
    path = request.scope.get("docket.page")
    if path is not None:
        # Live parts are made for the stream of the page, whose address has the page in its query.
        query = [(name, value) for name, value in query if name != "page"]
    first = [(name, value) for name, value in query if name != "after"]
    here = request.url.path if path is None else visit.url(path)
    return Look(
        theme=_choice(visit, "theme"),
        times=_choice(visit, "times"),
        now=_now(visit),
        stream=visit.url("live", **_stream_query(path, query)) if path is not None else None,
        server=_server(visit),
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


def _choice(visit: Visit, name: str) -> str:
    value = visit.request.cookies.get(f"docket-{name}")
    return value if value is not None and value in CHOICES[name] else CHOICES[name][0]


def _now(visit: Visit) -> datetime:
    if visit.segment is None or not is_open(visit.docket):
        return datetime.now(UTC)
    return visit.docket.now()


def _server(visit: Visit) -> str:
    """The engine, without its address: a viewer need not know that."""
    if visit.segment is None or not is_open(visit.docket):
        return ""
    server = visit.docket.server
    return f"{server.engine_name} {server.engine_version}"


async def answer(visit: Visit) -> Response:
    """Remembers a choice in a cookie, and goes back. It changes nothing on the server, so a viewer
    may do it."""
    response = visit.redirect(_safe(visit, visit.query.get("back")))
    for name, values in CHOICES.items():
        value = visit.query.get(name)
        if value is not None and value in values:
            response.set_cookie(f"docket-{name}", value, _YEAR, path=f"{visit.root}/", samesite="lax")
    return response


def _safe(visit: Visit, back: str | None) -> str:
    """Only a page of this dashboard: a link to here must not lead elsewhere."""
    if back is None or not back.startswith(f"{visit.root}/") or back.startswith("//") or "\\" in back:
        return visit.url("now")
    return back


PAGE = Page("look", answer)
