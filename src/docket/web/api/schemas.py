"""JSON schemas of the answers, read from the types of their fields."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from docket.dead import Letter
from docket.inspection.rules import StrikeView
from docket.model.histograms import Histogram
from docket.strikelist.pauses import Pause

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
            if kind in _OWN:
                properties = _OWN[kind](properties)
            about = " ".join((kind.__doc__ or "").split())
            self.components[name] = {
                "type": "object",
                "description": about,
                "properties": properties,
                "required": list(properties),
            }
        return reference


def _histogram(_: dict[str, Any]) -> dict[str, Any]:
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


def _letter(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: schema for name, schema in properties.items() if name != "execution"}


def _pause(properties: dict[str, Any]) -> dict[str, Any]:
    return {**properties, "value": _TEXT_OR_NULL, "text": {"type": "string"}}


def _strike(properties: dict[str, Any]) -> dict[str, Any]:
    return {**properties, "value": _TEXT_OR_NULL}


_OWN: dict[Any, Any] = {Histogram: _histogram, Letter: _letter, Pause: _pause, StrikeView: _strike}
