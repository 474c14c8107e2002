"""The middleware that every request passes before a page or the API sees it: the guard, changes
that another site makes a browser send (CSRF), and the headers of every answer.

A browser sends the visitor's credentials with every request, whichever site caused it. It also says
which site that was, in headers that no script can set."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .guards import Guard, Role, Visitor, ask
from .problems import Problem


def is_same_origin(headers: Headers) -> bool:
    """Whether a page of this dashboard caused the request. Programs send `Sec-Fetch-Site:
    same-origin` themselves; a request that says nothing counts as foreign."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin, host = headers.get("origin"), headers.get("host")
    if not origin or not host:
        return False
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    # A proxy may end TLS, so the scheme says nothing. Both leave out the port of their scheme.
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


ROOT, _VISITOR = "docket.root", "docket.visitor"
_SAFE = ("GET", "HEAD", "OPTIONS")
# Files of the package, without any data: a page that refuses a visitor needs its style, too.
_OPEN = "/assets/"
# Changes nothing but a cookie of the visitor, so it needs no role.
_PERSONAL = "/theme"
_STRANGER = Visitor(Role.VIEWER)
Refuse = Callable[[Request, Problem], Response]

_NOT_ALLOWED = Problem(403, "not-allowed", "You may not look at this", "The guard of this dashboard refused you.")
_READ_ONLY = Problem(403, "read-only", "This dashboard is read-only", "It shows, and changes nothing.")
_FOREIGN = Problem(
    403,
    "other-origin",
    "This request comes from elsewhere",
    "Changes are made from the pages of this dashboard. A program sends the header Sec-Fetch-Site: same-origin.",
)


class AccessMiddleware:
    """Asks the guard who the visitor is. Refuses changes of viewers, changes in read-only mode, and
    changes that another site caused."""

    def __init__(
        self, app: ASGIApp, *, guard: Guard | None, read_only: bool, hosts: Collection[str] | None, refuse: Refuse
    ) -> None:
        self._app = app
        self._guard = guard
        self._read_only = read_only
        self._hosts = None if hosts is None else frozenset(host.lower().strip("[]") for host in hosts)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[ROOT] = scope.get("root_path", "").rstrip("/")
        request = Request(scope, receive)
        found = await self._examine(request)
        if isinstance(found, Response):
            await found(scope, receive, send)
            return
        scope[_VISITOR] = found
        await self._app(scope, receive, send)

    async def _examine(self, request: Request) -> Visitor | Response:
        if self._hosts is not None and _host(request.headers) not in self._hosts:
            return self._refuse(request, _wrong_host(request.headers))
        path = path_of(request)
        if path.startswith(_OPEN):
            return _STRANGER
        visitor = await ask(self._guard, request, read_only=self._read_only)
        if visitor is None:
            return self._refuse(request, _NOT_ALLOWED)
        if isinstance(visitor, Response) or request.method in _SAFE:
            return visitor
        if not is_same_origin(request.headers):
            return self._refuse(request, _FOREIGN)
        if path == _PERSONAL:
            return visitor
        if self._read_only:
            return self._refuse(request, _READ_ONLY)
        if not visitor.may(Role.OPERATOR):
            return self._refuse(request, lacking(visitor, Role.OPERATOR))
        return visitor


def visitor_of(connection: HTTPConnection) -> Visitor:
    """The visitor. One who was refused is shown as a viewer."""
    return cast(Visitor, connection.scope.get(_VISITOR, _STRANGER))


def path_of(connection: HTTPConnection) -> str:
    """The path from the root of the dashboard."""
    return connection.scope["path"].removeprefix(connection.scope[ROOT])


def lacking(visitor: Visitor, role: Role) -> Problem:
    """The failure of a visitor whose role is not enough."""
    detail = f"It needs the role {role.value}; your role is {visitor.role.value}."
    return Problem(403, "role", "Your role does not permit this", detail)


def _host(headers: Headers) -> str:
    """The name in the header Host, without the port."""
    given = headers.get("host", "").lower()
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given.partition(":")[0]


def _wrong_host(headers: Headers) -> Problem:
    # A foreign page whose name now leads here ("DNS rebinding") is of this origin for the browser.
    detail = f"This dashboard is not called {_host(headers)!r}. Its command names its hosts: --allow-host NAME."
    return Problem(403, "wrong-host", "This is not the name of this dashboard", detail)


# No inline scripts or styles, no eval, nothing from other hosts, and no frame around the page.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With "no-referrer", browsers would not say which site sent a form.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
# Pages are about the present, and for their visitor only.
NOT_STORED = "no-store"


class SecurityHeaders:
    """Adds the headers to every answer that does not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                secure(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_headers)


def secure(headers: MutableHeaders) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("cache-control", NOT_STORED)
