"""The stored form of the values of strikes. Reading it runs no code: every process of a docket
reads every strike, so a value must not be able to do harm."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from docket.codec.packing import pack, unpack
from docket.codec.pickle_codec import PickleCodec
from docket.errors import TooLong, Undecodable, Unserializable

# The first three bytes of a value are those of an envelope: version, codec, flags.
_TAGGED, _PICKLED = b"\x01\x03\x00", b"\x01\x01\x00"
_HEADER = 3
MOST_BYTES = 4_096
_DEEPEST = 16
_64_BITS = 2**63

TYPES = (
    "None, bool, int, float, str, bytes, date, datetime, timedelta, UUID, Decimal, "
    "or a tuple, list, dict or set of these"
)


class RuleValues:
    """Converts the values of strikes and pauses to bytes and back.

    With `pickled`, values of other types are pickled. Every process that is to apply such a strike
    needs the same setting, and then runs whatever code a strike on its server contains.
    """

    def __init__(self, *, pickled: bool = False) -> None:
        self._pickle: PickleCodec | None = PickleCodec() if pickled else None

    def encode(self, value: Any) -> bytes:
        """Raises Unserializable for a value of another type, and TooLong for a long value."""
        try:
            data = _TAGGED + pack(_tagged(value, 0))
        except _Other as other:
            if self._pickle is None:
                raise Unserializable(
                    f"a value of type {type(other.value).__name__} cannot be stored in a strike: use {TYPES}, or "
                    "Docket(pickled_strikes=True) in every process"
                ) from None
            try:
                data = _PICKLED + self._pickle.encode_result(None, value)
            except Exception as error:
                raise Unserializable(f"a value of type {type(value).__name__} cannot be pickled: {error}") from error
        if len(data) > MOST_BYTES:
            raise TooLong(f"the value has {len(data):,} bytes; the value of a strike has {MOST_BYTES:,} at most")
        return data

    def decode(self, data: Any) -> Any:
        """Raises Undecodable for all bytes that are not a value of a known type."""
        if not isinstance(data, bytes) or len(data) > MOST_BYTES:
            raise Undecodable("its value is not one that docket stores")
        header = data[:_HEADER]
        if header == _TAGGED:
            try:
                return _plain(unpack(data[_HEADER:]), 0)
            except (ValueError, TypeError, ArithmeticError, InvalidOperation, RecursionError) as error:
                raise Undecodable(f"its value cannot be read ({type(error).__name__})") from None
        if header == _PICKLED and self._pickle is not None:
            try:
                return self._pickle.decode_result(None, data[_HEADER:])
            except BaseException as error:
                # Unpickling can raise any exception, even SystemExit.
                raise Undecodable(f"its value cannot be unpickled ({type(error).__name__})") from None
        if header == _PICKLED:
            raise Undecodable("its value is pickled, and this process does not accept that (pickled_strikes=False)")
        raise Undecodable("its value has a form that this release does not know")


class _Other(Exception):
    """A value that the tagged form does not know."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


# None, booleans, numbers of 64 bits, text and bytes are stored as msgpack. A list is always a tag
# and its contents.
def _tagged(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | float | bytes):
        return _base(value)
    if isinstance(value, int):
        return int(value) if -_64_BITS <= value < _64_BITS else ["int", str(int(value))]
    if isinstance(value, str):
        return _text(str.__str__(value))
    for kind, (name, write) in _SCALARS.items():
        if isinstance(value, kind):
            return [name, write(value)]
    name = _CONTAINERS.get(cast("type[Any]", type(value)))
    if name is None or depth >= _DEEPEST:
        raise _Other(value)
    members = [item for pair in value.items() for item in pair] if name == "dict" else _ordered(value)
    return [name, [_tagged(member, depth + 1) for member in members]]


def _base(value: Any) -> Any:
    """Subclasses (numpy's float64) are stored as the type that they extend."""
    if isinstance(value, float):
        return float(value)
    return bytes(value) if isinstance(value, bytes) else value


def _text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return ["str", text.encode("utf-8", "surrogatepass")]
    return text


def _ordered(members: Any) -> list[Any]:
    """Equal sets get equal bytes."""
    listed: list[Any] = list(members)
    return sorted(listed, key=repr) if isinstance(members, set | frozenset) else listed


# datetime is a date, so it comes first.
_SCALARS: Mapping[type[Any], tuple[str, Callable[[Any], Any]]] = {
    datetime: ("datetime", lambda value: value.isoformat()),
    date: ("date", lambda value: value.isoformat()),
    timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    uuid.UUID: ("uuid", lambda value: value.bytes),
    Decimal: ("decimal", str),
}
_CONTAINERS: Mapping[type[Any], str] = {tuple: "tuple", list: "list", dict: "dict", set: "set", frozenset: "frozenset"}


def _plain(stored: Any, depth: int) -> Any:
    if not isinstance(stored, list):
        if stored is None or isinstance(stored, bool | int | float | str | bytes):
            return stored
        raise TypeError(type(stored).__name__)
    name, content = cast("list[Any]", stored)
    read = _READERS.get(name) if isinstance(name, str) else None
    if read is not None:
        return read(content)
    if name not in _CONTAINERS.values() or depth >= _DEEPEST:
        raise ValueError(name)
    members = [_plain(member, depth + 1) for member in content]
    if name == "dict":
        return dict(zip(members[::2], members[1::2], strict=True))
    return next(kind for kind, known in _CONTAINERS.items() if known == name)(members)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "int": lambda text: int(_checked(text, str)),
    "str": lambda data: _checked(data, bytes).decode("utf-8", "surrogatepass"),
    "datetime": lambda text: datetime.fromisoformat(_checked(text, str)),
    "date": lambda text: date.fromisoformat(_checked(text, str)),
    "timedelta": lambda parts: timedelta(*(_checked(part, int) for part in _checked(parts, list))),
    "uuid": lambda data: uuid.UUID(bytes=_checked(data, bytes)),
    "decimal": lambda text: Decimal(_checked(text, str)),
}


def _checked(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(type(value).__name__)
    return value
