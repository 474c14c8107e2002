"""One request for a page of a docket: who asks, about which docket, and how to answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from docket.docket import Docket

from .census_reader import CensusReader
from .entrance import visitor_of
from .guards import Role, Visitor
from .messages import read_message, with_message

if TYPE_CHECKING:
    from .dashboard import Dashboard


class Visit:
    """What a page gets. Without a docket it is a visit of the dashboard itself."""

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
        """The same, from the root of the dashboard."""
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
            "visit": self,
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
