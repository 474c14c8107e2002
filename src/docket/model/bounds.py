"""The bounds of what docket stores: the longest names and messages (docs/security.md; for keys see
`task_keys`), and the number of losses after which it buries a task."""

from __future__ import annotations

from typing import Any

from docket.errors import TooLong

NAME_BYTES = 1_024
MESSAGE_BYTES = 8_192
# The W3C permits 8,192 bytes of baggage, and there is more in a trace context.
TRACE_BYTES = 16_384

# A character has at most four bytes, so shorter texts need not be encoded.
_SHORT = NAME_BYTES // 4


def check_name(name: str) -> None:
    if len(name) > _SHORT:
        check_size("the name of the function", name, NAME_BYTES)


def check_message(message: str) -> None:
    if len(message) > _SHORT:
        check_size("the message of the progress", message, MESSAGE_BYTES)


def check_trace(context: dict[str, str]) -> None:
    check_size("the trace context", "".join([*context, *context.values()]), TRACE_BYTES)


def check_size(what: str, text: str, most: int) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise TooLong(f"{what} has {size:,} bytes; docket stores {most:,} at most ({text[:40]!r}…)")


# The default. A task with this many losses is buried if
# it was the only run of its worker at the last loss.
MAX_LOSSES = 3
# A task record has seven bits for the count.
MOST_LOSSES = 127


def check_max_losses(what: str, count: Any) -> int:
    """Returns the count. Raises a TypeError or ValueError
    that names the setting if the count is not valid."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{what}: a number of losses is an int, not {type(count).__name__}")
    if not 1 <= count <= MOST_LOSSES:
        raise ValueError(f"{what}: {count} must be from 1 to {MOST_LOSSES}")
    return count
