"""The plain form of every answer of the API, and its JSON Schema."""

from __future__ import annotations

import enum
import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from starlette.responses import Response

from docket.dead import Letter
from docket.inspection.rules import StrikeView
from docket.model.histograms import BOUNDS, Histogram
from docket.strikelist.instructions import shown
from docket.strikelist.pauses import Pause

# A whole number beyond these is exact in few programs only.
_LARGEST = 2**53


class PlainResponse(Response):
    """JSON in ASCII: any text fits, also one that is not valid Unicode."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """The value as JSON has it. What is not known here becomes a text."""
    if value is None or isinstance(value, str | bool):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in cast("set[Any]", value)), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[Any]", value)]
    return _object(value)


def _object(value: Any) -> Any:
    own = _OWN.get(cast("type[Any]", type(value)))
    if own is not None:
        return own(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return str(value)


def _histogram(times: Histogram) -> dict[str, Any]:
    buckets = [
        {"below": BOUNDS[bucket] if bucket < len(BOUNDS) else None, "count": count}
        for bucket, count in sorted(times.counts.items())
    ]
    return {"count": times.count, "p50": times.p50, "p95": times.p95, "p99": times.p99, "buckets": buckets}


def _letter(letter: Letter) -> dict[str, Any]:
    return plain({name: value for name, value in letter.as_json().items() if name != "execution"})


def _pause(pause: Pause) -> dict[str, Any]:
    """The value may have any type, so it is shown as text."""
    found = {field.name: plain(getattr(pause, field.name)) for field in fields(pause) if field.name != "value"}
    return {**found, "value": None if pause.parameter is None else shown(pause.value), "text": str(pause)}


def _strike(strike: StrikeView) -> dict[str, Any]:
    found = {field.name: plain(getattr(strike, field.name)) for field in fields(strike) if field.name != "value"}
    return {**found, "value": None if strike.parameter is None else shown(strike.value)}


_OWN: dict[type[Any], Any] = {Histogram: _histogram, Letter: _letter, Pause: _pause, StrikeView: _strike}

_NULL = {"type": "null"}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: _NUMBER_OR_NULL,
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    timedelta: {"type": "number"},
    type(None): _NULL,
    Any: {},
    object: {},
}
_TEXT_OR_NULL = {"type": ["string", "null"]}


class Schemas:
    """The schemas of dataclasses, by name: the components of the OpenAPI document."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type. That of a dataclass is a reference to its component."""
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, inside = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in inside]}
        if origin in (tuple, list, set, frozenset):
            return self._items(inside)
        if origin is Literal:
            return {"type": "string", "enum": list(inside)}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(inside[1])}
        if isinstance(kind, enum.EnumType):
            values: list[Any] = [one.value for one in cast("Iterable[enum.Enum]", kind)]
            return {"type": "string", "enum": values}
        if is_dataclass(kind):
            return self._component(kind)
        return {}

    def _items(self, inside: tuple[Any, ...]) -> dict[str, Any]:
        if len(inside) == 2 and inside[1] is not Ellipsis:
            both = [self.of(one) for one in inside]
            return {"type": "array", "prefixItems": both, "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": self.of(inside[0])}

    def _component(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        reference = {"$ref": f"#/components/schemas/{name}"}
        if name not in self.components:
            # A type may contain itself.
            self.components[name] = {}
            hints = get_type_hints(kind)
            properties = {field.name: self.of(hints[field.name]) for field in fields(kind)}
            if kind in _OWN_SCHEMAS:
                properties = _OWN_SCHEMAS[kind](properties)
            about = " ".join((kind.__doc__ or "").split())
            self.components[name] = {
                "type": "object",
                "description": about,
                "properties": properties,
                "required": list(properties),
            }
        return reference


def _histogram_schema(_: dict[str, Any]) -> dict[str, Any]:
    bucket = {
        "type": "object",
        "properties": {"below": _NUMBER_OR_NULL, "count": {"type": "integer"}},
        "required": ["below", "count"],
    }
    return {
        "count": {"type": "integer"},
        **dict.fromkeys(("p50", "p95", "p99"), _NUMBER_OR_NULL),
        "buckets": {"type": "array", "items": bucket},
    }


def _letter_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: schema for name, schema in properties.items() if name != "execution"}


def _pause_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {**properties, "value": _TEXT_OR_NULL, "text": {"type": "string"}}


def _strike_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {**properties, "value": _TEXT_OR_NULL}


_OWN_SCHEMAS: dict[Any, Any] = {
    Histogram: _histogram_schema,
    Letter: _letter_schema,
    Pause: _pause_schema,
    StrikeView: _strike_schema,
}
