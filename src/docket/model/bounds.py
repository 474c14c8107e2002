"""The longest keys, names and messages that docket stores (docs/security.md)."""

from __future__ import annotations

from docket.errors import TooLong

KEY_BYTES = 1_024
NAME_BYTES = 1_024
MESSAGE_BYTES = 8_192
# The W3C permits 8,192 bytes of baggage, and there is more in a trace context.
TRACE_BYTES = 16_384

# A character has at most four bytes, so shorter texts need not be encoded.
_SHORT = KEY_BYTES // 4


def check_key(key: str) -> None:
    if len(key) > _SHORT:
        _check("the key", key, KEY_BYTES)


def check_name(name: str) -> None:
    if len(name) > _SHORT:
        _check("the name of the function", name, NAME_BYTES)


def check_message(message: str) -> None:
    if len(message) > _SHORT:
        _check("the message of the progress", message, MESSAGE_BYTES)


def check_trace(context: dict[str, str]) -> None:
    _check("the trace context", "".join([*context, *context.values()]), TRACE_BYTES)


def _check(what: str, text: str, most: int) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise TooLong(f"{what} has {size:,} bytes; docket stores {most:,} at most ({text[:40]!r}…)")
