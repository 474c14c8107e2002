"""One request for a page of a docket: who asks, about which docket, and
how to answer; and the flash message of the last change, in a cookie, so
it works without JavaScript and with several web processes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from docket.docket import Docket

from .access import visitor_of
from .guards import Role, Visitor
from .streams import CensusReader

if TYPE_CHECKING:
    from .dashboard import Dashboard

_COOKIE = "docket-message"
_MOST = 500
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class FlashMessage:
    text: str
    is_error: bool = False


def with_message(response: Response, root: str, text: str | None, *, is_error: bool = False) -> None:
    """Sets the message, or removes it if there is no text."""
    path = f"{root}/"
    if text is None:
        response.delete_cookie(_COOKIE, path, httponly=True, samesite="strict")
        return
    cut = text if len(text) <= _MOST else f"{text[:_MOST]}…"
    content = base64.urlsafe_b64encode(f"{int(is_error)}{cut}".encode(errors="replace")).decode().rstrip("=")
    response.set_cookie(_COOKIE, content, _SECONDS, path=path, httponly=True, samesite="strict")


def read_message(request: Request) -> FlashMessage | None:
    """The message of the last change. Anything else in the cookie is ignored."""
    content = request.cookies.get(_COOKIE)
    if not content or len(content) > 8 * _MOST:
        return None
    try:
        found = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    return FlashMessage(found[1:], found[0] == "1") if found[:1] in ("0", "1") else None


class PageRequest:
    """One request, as a page gets it. Without a docket it is a request for the dashboard itself."""

    def __init__(self, dashboard: Dashboard, request: Request, segment: str | None = None) -> None:
        self.dashboard = dashboard
        self.request = request
        self.segment = segment

    @property
    def docket(self) -> Docket:
        assert self.segment is not None
        return self.dashboard.dockets[self.segment]

    @property
    def reader(self) -> CensusReader:
        """Reads the census of this docket, once for all visitors."""
        return self.dashboard.reader(self.docket)

    @property
    def visitor(self) -> Visitor:
        return visitor_of(self.request)

    def may(self, role: Role | str) -> bool:
        return self.visitor.may(role)

    @property
    def query(self) -> Mapping[str, str]:
        """The query of the URL."""
        return self.request.query_params

    # URLs

    @cached_property
    def root(self) -> str:
        """The path where the dashboard is mounted, without a slash at its end."""
        return quote(self.request.scope["docket.root"], safe="/")

    def url(self, /, *parts: str, **query: Any) -> str:
        """The path of a page about this docket: `url("functions", name)`, `url("task", key=key)`. A
        value of None is left out."""
        return self.site("" if self.segment is None else self.segment, *parts, **query)

    def site(self, /, *parts: str, **query: Any) -> str:
        """A path from the root of the dashboard."""
        path = "/".join(quote(part, safe="") for part in parts)
        given = {name: value for name, value in query.items() if value is not None}
        return f"{self.root}/{path}" + (f"?{urlencode(given, doseq=True, errors='replace')}" if given else "")

    def asset(self, name: str) -> str:
        return f"{self.root}/{self.dashboard.assets.path(name)}"

    # Answers

    def render(self, template: str, /, status: int = 200, **context: Any) -> HTMLResponse:
        """A whole page. Besides `context`, templates know `visit`, `url`, `site`, `asset`, `may`,
        `pages`, `page` (its path) and `message` (what became of the last change, or None)."""
        message = read_message(self.request)
        response = HTMLResponse(self.fragment(template, message=message, **context), status)
        # A page that asks again keeps the message for the one that follows, and so does a script.
        if message is not None and status < 500 and self._is_seen:
            with_message(response, self.root, None)
        return response

    @property
    def _is_seen(self) -> bool:
        """Whether the browser shows the answer as its page. An old browser does not say."""
        return self.request.headers.get("sec-fetch-mode", "navigate") == "navigate"

    def fragment(self, template: str, /, **context: Any) -> str:
        """The HTML of a template, for a part of a page."""
        common = {
            "page_request": self,
            "url": self.url,
            "site": self.site,
            "asset": self.asset,
            "may": self.may,
            "pages": self.dashboard.navigation,
            "page": self.request.scope.get("docket.page"),
            "message": None,
        }
        return self.dashboard.templates.get_template(template).render({**common, **context})

    def redirect(self, path: str, message: str | None = None, *, is_error: bool = False) -> RedirectResponse:
        """After a change: a page of this dashboard, which shows the message once."""
        response = RedirectResponse(path, 303)
        if message is not None:
            with_message(response, self.root, message, is_error=is_error)
        return response


PageAnswer = Callable[["PageRequest"], Awaitable[Response]]
LivePart = Callable[["PageRequest"], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class WebPage:
    """One page about a docket, at `/{docket}/{path}`. Pages with a title are in the navigation.

    `live` makes the HTML of the parts that change. It is called about once a second for all tabs
    that show the same, and they receive it over their streams.
    """

    path: str
    answer: PageAnswer
    title: str | None = None
    live: LivePart | None = None
