"""The ASGI application of the dashboard: its pages,
its assets, and changes from the forms of pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from docket.docket import Docket
from docket.errors import DocketError

from .access import AccessMiddleware, SecurityHeaders
from .actions import ACTIONS, carry_out, check_role
from .api import api_routes
from .dashboard import Dashboard, TraceLinks, in_time
from .guards import Guard
from .inputs import read_form, read_form_body
from .live import live_route
from .page_request import PageRequest, WebPage
from .pages import ROOT_ROUTES
from .problems import explain

RETURN_TO = "return_to"
_UNSURE = "It is not known whether the change was made: look before you repeat it."


def form_route(dashboard: Dashboard) -> Route:
    async def answer(request: Request) -> Response:
        page_request = dashboard.page_request(request)
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise HTTPException(404)
        check_role(action, page_request.visitor)
        fields = await read_form_body(request)
        back = _page(page_request, next((value for name, value in fields if name == RETURN_TO), None))
        try:
            given = read_form(action.inputs, [field for field in fields if field[0] != RETURN_TO])
            with dashboard.jobs(page_request.docket).job(action.summary, page_request.visitor.name) as job:
                done = await carry_out(action, page_request.docket, page_request.visitor, "web", given, job)
        except Exception as error:
            problem = explain(error)
            if problem.status in (403, 500):
                raise
            words = f"{problem.title}: {problem.detail}"
            return page_request.redirect(back, words if problem.status < 500 else f"{words} {_UNSURE}", is_error=True)
        return page_request.redirect(back, done.sentence)

    return Route("/{docket}/actions/{action:path}", answer, methods=["POST"])


def _page(page_request: PageRequest, path: str | None) -> str:
    """The page to return to: only one of this docket, so that no form leads elsewhere."""
    beginning = page_request.url("")
    if path is None or not path.startswith(beginning) or "\\" in path or not path.isprintable():
        return page_request.url(page_request.dashboard.pages[0].path)
    return path


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING = _Missing()


def app(
    *dockets: Docket,
    guard: Guard | _Missing | None = _MISSING,
    read_only: bool = False,
    hosts: Collection[str] | None = None,
    trace_url: str | None = None,
) -> Starlette:
    """The dashboard and the REST API of one or several dockets, as an ASGI application.

    Mount it below any path: `application.mount("/docket", docket.web.app(my_docket, guard=guard))`.
    The application opens dockets that are not open if it receives the events of its life, which a
    mounted application does not: there your own application opens them.

    `guard` is called with each request, and answers a `Visitor`, a `Role`, or None to keep the
    sender out; a `Response`, such as a redirect to your page to sign in, is sent as it is. It may
    be async. `guard=None` lets everybody do everything: only for a dashboard that nobody else can
    reach. `read_only` makes every visitor a viewer. `hosts` are the names under which the dashboard
    may be called; without a guard, name them, so that no other page can pretend to be this one.
    `trace_url` is the address of a trace in your tracing system, such as
    `https://tracing.example/trace/{trace_id}`: the page of a task then has a link to its trace.

    Raises ValueError without `guard`, without a docket, and for a `trace_url` that is not such a
    URL.
    """
    if isinstance(guard, _Missing):
        raise ValueError(
            "docket.web.app() needs guard=…, which says who may do what; "
            "guard=None, written out, lets everybody do everything"
        )
    if guard is not None and not callable(guard):
        raise TypeError(f"guard={guard!r}: a guard is a function that takes a request")
    if not dockets:
        raise ValueError("docket.web.app() needs at least one docket")
    for docket in dockets:
        if not isinstance(docket, Docket):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"docket.web.app({docket!r}): this is not a docket.Docket")
    traces = TraceLinks(trace_url) if trace_url is not None else None
    dashboard = Dashboard(dockets, read_only=read_only, traces=traces)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[None]:
        async with dashboard.opened():
            yield

    entrance = Middleware(AccessMiddleware, guard=guard, read_only=read_only, hosts=hosts, refuse=dashboard.failed)
    handled = (HTTPException, DocketError, TimeoutError, Exception)
    made = Starlette(
        routes=_routes(dashboard),
        middleware=[Middleware(SecurityHeaders), entrance],
        exception_handlers=dict.fromkeys(handled, dashboard.on_error),
        lifespan=lifespan,
    )
    # Such a redirect would lead to whatever host the request names.
    made.router.redirect_slashes = False
    made.state.dashboard = dashboard
    return made


def _routes(dashboard: Dashboard) -> list[BaseRoute]:
    async def start(request: Request) -> Response:
        """The only docket, or the list of all of them."""
        page_request = PageRequest(dashboard, request)
        if len(dashboard.dockets) == 1:
            return page_request.redirect(page_request.site(*dashboard.dockets, dashboard.pages[0].path))
        return page_request.render("dockets.html", dockets=dashboard.dockets)

    async def docket_start(request: Request) -> Response:
        page_request = dashboard.page_request(request)
        return page_request.redirect(page_request.url(dashboard.pages[0].path))

    return [
        Route("/", start),
        Route("/assets/{digest}/{name:path}", dashboard.assets.answer),
        *api_routes(dashboard),
        *ROOT_ROUTES,
        *(_page_route(dashboard, page) for page in dashboard.pages),
        live_route(dashboard),
        form_route(dashboard),
        Route("/{docket}", docket_start),
        Route("/{docket}/", docket_start),
    ]


def _page_route(dashboard: Dashboard, page: WebPage) -> Route:
    async def answer(request: Request) -> Response:
        page_request = dashboard.page_request(request)
        request.scope["docket.page"] = page.path
        return await page.answer(page_request)

    return Route(f"/{{docket}}/{page.path}", in_time(answer), methods=["GET"])
