"""The trace of a task, for a look into a tracing system."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(context: Mapping[str, str] | None) -> str | None:
    """The id in a W3C trace context, or None. Anybody may have written the context."""
    found = _TRACEPARENT.fullmatch(str((context or {}).get("traceparent", "")))
    return found[1] if found is not None else None
