"""Answers of the API as JSON values: times in ISO 8601, durations in seconds."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, cast

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
