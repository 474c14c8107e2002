"""The addresses of the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from docket.errors import DocketError
from docket.storage.client.urls import hide_password
from docket.web.access import visitor_of
from docket.web.actions import ACTIONS, Action, carry_out, check_role
from docket.web.dashboard import Dashboard, in_time
from docket.web.inputs import read_json, read_json_body, read_query, refused
from docket.web.problems import Refused

from .event_feed import feed
from .openapi import EVENT_INPUTS, EVENTS, describe
from .plain import PlainResponse, plain
from .reads import READS, Read

ROOT = "/api/v1"


@dataclass(frozen=True, kw_only=True, slots=True)
class DocketEntry:
    """A docket of this dashboard. `segment` is its name in URLs."""

    name: str
    segment: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dockets:
    """All dockets of this dashboard, and what the sender of the request may do."""

    dockets: tuple[DocketEntry, ...]
    role: str
    read_only: bool


def api_routes(dashboard: Dashboard) -> list[BaseRoute]:
    document = describe(dashboard.dockets, READS, ACTIONS.values(), Dockets)

    async def openapi(request: Request) -> Response:
        return PlainResponse({**document, "servers": [{"url": f"{request.scope['docket.root']}{ROOT}"}]})

    async def dockets(request: Request) -> Response:
        read_query((), request.query_params.multi_items())
        entries = tuple(
            DocketEntry(name=docket.name, segment=segment, url=hide_password(docket.url))
            for segment, docket in dashboard.dockets.items()
        )
        found = Dockets(dockets=entries, role=visitor_of(request).role.value, read_only=dashboard.read_only)
        return PlainResponse(plain(found))

    return [
        Route(f"{ROOT}/openapi.json", openapi, methods=["GET"]),
        Route(f"{ROOT}/dockets", dockets, methods=["GET"]),
        *(_read_route(dashboard, read) for read in READS),
        _events_route(dashboard),
        *(_action_route(dashboard, action) for action in ACTIONS.values()),
        Route("/api/{rest:path}", _nothing),
    ]


def _read_route(dashboard: Dashboard, read: Read) -> Route:
    async def answer(request: Request) -> Response:
        docket = dashboard.find(request.path_params["docket"])
        given = read_query(read.inputs, request.query_params.multi_items())
        try:
            found = await read.read(docket, **given)
        except DocketError:
            raise
        except ValueError as error:
            raise refused(str(error)) from error
        if found is None:
            raise Refused(404, "not-found", f"There is no such {read.missing}", f"There is no such {read.missing}.")
        return PlainResponse(plain(found))

    return Route(f"{ROOT}/{{docket}}/{read.path}", in_time(answer), methods=["GET"])


def _events_route(dashboard: Dashboard) -> Route:
    async def answer(request: Request) -> Response:
        docket = dashboard.find(request.path_params["docket"])
        given = read_query(EVENT_INPUTS, request.query_params.multi_items())
        tap = dashboard.tap(docket) if given.get("tasks") else None
        return dashboard.stream(feed(dashboard.reader(docket), tap))

    return Route(f"{ROOT}/{{docket}}/{EVENTS}", answer, methods=["GET"])


def _action_route(dashboard: Dashboard, action: Action) -> Route:
    async def answer(request: Request) -> Response:
        docket, visitor = dashboard.find(request.path_params["docket"]), visitor_of(request)
        check_role(action, visitor)
        read_query((), request.query_params.multi_items())
        given = read_json(action.inputs, await read_json_body(request))
        with dashboard.jobs(docket).job(action.summary, visitor.name) as job:
            done = await carry_out(action, docket, visitor, "api", given, job)
        answer: dict[str, Any] = plain(done)
        return PlainResponse(answer)

    return Route(f"{ROOT}/{{docket}}/{action.path}", answer, methods=["POST"])


async def _nothing(request: Request) -> Response:
    raise HTTPException(404, "There is no such address in the API; /api/v1/openapi.json lists them.")
