"""Values as people write them in commands and forms: text, or `type:value` for other types."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from .amounts import read_duration


def _boolean(text: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return known[text.strip().lower()]


def _nothing(text: str) -> None:
    if text:
        raise ValueError(text)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": _boolean,
    "none": _nothing,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "timedelta": read_duration,
    "uuid": uuid.UUID,
    "decimal": Decimal,
    # The full names of the types work too.
    "datetime.date": date.fromisoformat,
    "datetime.datetime": datetime.fromisoformat,
    "datetime.timedelta": read_duration,
    "uuid.uuid": uuid.UUID,
    "decimal.decimal": Decimal,
}
TYPES = "str, int, float, bool, none, date, datetime, timedelta, uuid, decimal"


def read_value(text: str) -> Any:
    """`int:5` is a number and `5` is text. A colon that does not follow a type is part of the text.

    Raises ValueError if the value is not of the type.
    """
    name, colon, rest = text.partition(":")
    read = _READERS.get(name.lower()) if colon else None
    if read is None:
        return text
    try:
        return read(rest)
    except (ValueError, KeyError, InvalidOperation):
        raise ValueError(f"{rest!r} is not a valid {name.lower()}") from None


def read_range(text: str) -> tuple[Any, Any]:
    """Reads `int:1..5`: two values of one type, both included. Raises ValueError if it is not a
    range."""
    name, colon, rest = text.partition(":")
    prefix = f"{name}:" if colon and name.lower() in _READERS else ""
    low, dots, high = (rest if prefix else text).partition("..")
    if not dots or not low or not high:
        raise ValueError(f"{text!r} is not a range: write int:1..5 or date:2026-01-01..2026-02-01")
    return read_value(prefix + low), read_value(prefix + high)


def better_type(text: str) -> str | None:
    """The type that the user probably meant by a text without a type."""
    if ":" in text and text.partition(":")[0].lower() in _READERS:
        return None
    for name in ("int", "float", "uuid", "date", "datetime"):
        try:
            _READERS[name](text)
        except ValueError:
            continue
        return name
    return "bool" if text.lower() in ("true", "false") else None
