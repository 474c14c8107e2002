"""The headers of a call, in front of its envelope: the trace context, and the arguments for display
(docs/design/payloads.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .packing import pack, unpack

# The length of the headers of a call without any.
NO_HEADERS = b"\0\0"
_SHOWN = "docket.arguments"
_LENGTH = 2


def pack_headers(trace_context: Mapping[str, str] | None, shown: Mapping[str, str] | None) -> bytes:
    if not shown:
        if not trace_context:
            return NO_HEADERS
        data = pack(trace_context)
    else:
        data = pack({**trace_context, _SHOWN: shown} if trace_context else {_SHOWN: shown})
    return len(data).to_bytes(_LENGTH, "little") + data


def read_trace(headers: bytes) -> dict[str, str]:
    """Returns an empty context if it cannot be read, because it must not fail the task."""
    found = _read(headers)
    found.pop(_SHOWN, None)
    return found


def shown_arguments(call: bytes) -> dict[str, str] | None:
    """The `Logged` arguments of a call by parameter, as text for a display. The beginning of the
    call is enough. None if the call has no such texts, or if the headers are cut.

    Nothing is decoded or verified: anybody who writes to the server may have written them."""
    length = int.from_bytes(call[:_LENGTH], "little")
    if not length or len(call) < _LENGTH + length:
        return None
    shown: Any = _read(call[_LENGTH : _LENGTH + length]).get(_SHOWN)
    if not isinstance(shown, dict):
        return None
    return {str(name): str(text) for name, text in shown.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - anything


def _read(headers: bytes) -> dict[str, Any]:
    try:
        return dict(unpack(headers))
    except (ValueError, TypeError):
        return {}
