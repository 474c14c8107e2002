"""The OpenAPI document, made of the descriptions of all questions and changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from docket._version import __version__
from docket.web.actions import Action, ActionResult
from docket.web.inputs import Input, flag

from .plain import Schemas
from .reads import Read

# The stream of events.
EVENTS = "events"
EVENT_INPUTS: tuple[Input, ...] = (flag("tasks", "Also an event for every change of a task; by default only counts."),)
_PROBLEM = "application/problem+json"
_ABOUT = """\
Reads and changes the dockets of a docket dashboard. Times are in ISO 8601, durations in seconds.
Errors are problem+json (RFC 9457). Lists come in pages: the cursor of a page leads to the next one.
Changes need the header `Sec-Fetch-Site: same-origin` (or an `Origin` equal to the host), which no
page of another site can send, and a role: operator or admin."""


def describe(
    dockets: Collection[str], reads: Sequence[Read], actions: Iterable[Action], listing: Any
) -> dict[str, Any]:
    schemas = Schemas()
    paths: dict[str, Any] = {
        "/dockets": {
            "get": {
                "operationId": "dockets",
                "summary": "The dockets of this dashboard",
                "responses": _responses(schemas.of(listing)),
            }
        }
    }
    docket = {
        "name": "docket",
        "in": "path",
        "required": True,
        "description": "The segment of the docket.",
        "schema": {"type": "string", "enum": list(dockets)},
    }
    for read in reads:
        paths.setdefault(f"/{{docket}}/{read.path}", {})["get"] = {
            "operationId": _operation("get", read.path),
            "summary": read.summary,
            "parameters": [docket, *map(_parameter, read.inputs)],
            "responses": _responses(schemas.of(read.answer)),
        }
    paths[f"/{{docket}}/{EVENTS}"] = {"get": _events(docket)}
    for action in actions:
        paths.setdefault(f"/{{docket}}/{action.path}", {})["post"] = {
            "operationId": _operation("post", action.path),
            "summary": action.summary,
            "description": f"Needs the role {action.role.value}.",
            "parameters": [docket],
            "requestBody": {"required": True, "content": {"application/json": {"schema": _body(action.inputs)}}},
            "responses": _responses(schemas.of(ActionResult)),
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "docket", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": {**schemas.components, "Problem": _problem()}},
    }


def _events(docket: dict[str, Any]) -> dict[str, Any]:
    about = "census: the counts, if they have changed; task: a change of a task; dropped: how many were lost; trouble"
    return {
        "operationId": _operation("get", EVENTS),
        "summary": "Server-sent events: counts, and changes of tasks",
        "parameters": [docket, *map(_parameter, EVENT_INPUTS)],
        "responses": {
            **_responses({}),
            "200": {"description": about, "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        },
    }


def _operation(method: str, path: str) -> str:
    return "_".join((method, *path.replace("-", "_").split("/")))


def _parameter(one: Input) -> dict[str, Any]:
    return {
        "name": one.name,
        "in": "query",
        "required": one.is_required,
        "description": one.help,
        "schema": dict(one.schema),
    }


def _body(inputs: Sequence[Input]) -> dict[str, Any]:
    properties = {one.name: {**one.schema, "description": one.help} for one in inputs}
    required = [one.name for one in inputs if one.is_required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _responses(schema: dict[str, Any]) -> dict[str, Any]:
    problem = {"content": {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": schema}}},
        "4XX": {"description": "The request was not carried out; the problem says why.", **problem},
        "5XX": {"description": "The server of the docket is away, or something went wrong.", **problem},
    }


def _problem() -> dict[str, Any]:
    properties = {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}
