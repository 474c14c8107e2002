"""The stored form of strikes and pauses. A rule is sealed and opened
here and nowhere else. Reading its value runs no code: every process of
a docket reads every strike, so a value must not be able to do harm."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, TypeVar, cast

from docket.codec import Payloads
from docket.codec.packing import pack, unpack
from docket.codec.pickle_codec import PickleCodec
from docket.errors import PayloadRefused, TooLong, Undecodable, Unserializable
from docket.storage.keys import bytes_text, text_bytes

from .instructions import Operator, Strike, StrikeInstruction, shown

_FORMAT = 2
# The first byte of an envelope. A rule without an envelope begins with another byte.
_SEALED = b"\x01"
Rule = TypeVar("Rule", bound=Strike)

# A rule has a function, a parameter, a value of 4 kB and the text that shows it.
_LONGEST_RULE = 16_384
# The first three bytes of a value are those of an envelope: version, codec, flags.
_TAGGED, _PICKLED = b"\x01\x03\x00", b"\x01\x01\x00"
_HEADER = 3
_LONGEST_VALUE = 4_096
_DEEPEST = 16
_64_BITS = 2**63

TYPES = (
    "None, bool, int, float, str, bytes, date, datetime, timedelta, UUID, Decimal, "
    "or a tuple, list, dict or set of these"
)


class StoredRules(Generic[Rule]):
    """Turns strikes, or the rules of pauses, into the bytes that are stored, and back."""

    def __init__(self, kind: type[Rule], values: RuleValues, payloads: Payloads) -> None:
        self._kind = kind
        self._values = values
        self._payloads = payloads

    def encode(self, strike: StrikeInstruction) -> tuple[str, bytes]:
        """The hash field and the bytes of a strike. Raises Unserializable for a value that cannot
        be stored, and TooLong for one that is too long."""
        try:
            value = self._values.encode(strike.value)
        except Unserializable as error:
            raise Unserializable(f"{self._kind.direction} {strike.call_repr()}: {error}"[:500]) from error
        except TooLong as error:
            raise TooLong(f"{self._kind.direction} {strike.call_repr()}: {error}"[:500]) from None
        function, parameter = _bytes_or_none(strike.function), _bytes_or_none(strike.parameter)
        target = pack((function, parameter, strike.operator.value))
        rule = pack((_FORMAT, function, parameter, strike.operator.value, value, shown(strike.value)))
        # Without keys a rule needs no envelope.
        sealed = self._payloads.seal_rule(self._kind.direction, rule) if self._payloads.signs else rule
        return hashlib.sha1(target + value).hexdigest(), sealed

    def decode(self, rule: bytes) -> Rule:
        """Raises Undecodable for bytes that are not a strike, and for a strike whose value this
        process does not read."""
        if len(rule) > _LONGEST_RULE:
            raise Undecodable(f"it has {len(rule):,} bytes")
        function, parameter, operator, value = _fields(self._opened(rule))
        try:
            strike = self._kind(_text_or_none(function), _text_or_none(parameter), Operator.read(operator))
            strike.value = self._values.decode(value) if strike.parameter is not None else None
            strike.check()
        except Undecodable:
            raise
        except (ValueError, TypeError) as error:
            raise Undecodable(str(error)[:200]) from None
        return strike

    def _opened(self, rule: bytes) -> bytes:
        """The rule without its envelope. Raises Undecodable."""
        if rule[:1] == _SEALED:
            return self._payloads.open_rule(self._kind.direction, rule)
        if not self._payloads.accepts_unsigned:
            raise PayloadRefused("it is not signed, but this docket has a keyring", "unsigned")
        return rule


def _fields(rule: bytes) -> tuple[Any, Any, Any, Any]:
    try:
        version, *fields = unpack(rule)
    except (ValueError, TypeError):
        raise Undecodable("it is not a rule") from None
    if version == 1:
        raise Undecodable("an earlier release pickled it; strike again, and remove this rule")
    if version != _FORMAT or len(fields) != 5:
        raise Undecodable("it has a form that this release does not know")
    function, parameter, operator, value, _ = fields
    return function, parameter, operator, value


def _bytes_or_none(text: str | None) -> bytes | None:
    return None if text is None else text_bytes(text)


def _text_or_none(data: Any) -> str | None:
    if data is not None and not isinstance(data, bytes):
        raise TypeError("a name in it is not text")
    return None if data is None else bytes_text(data)


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
        if len(data) > _LONGEST_VALUE:
            raise TooLong(f"the value has {len(data):,} bytes; the value of a strike has {_LONGEST_VALUE:,} at most")
        return data

    def decode(self, data: Any) -> Any:
        """Raises Undecodable for all bytes that are not a value of a known type."""
        if not isinstance(data, bytes) or len(data) > _LONGEST_VALUE:
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
