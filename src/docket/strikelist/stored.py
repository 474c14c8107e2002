"""The stored form of strikes and pauses. A rule is sealed and opened here and nowhere else."""

from __future__ import annotations

import hashlib
from typing import Any, Generic, TypeVar

from docket.codec import Payloads
from docket.codec.packing import pack, unpack
from docket.errors import PayloadRefused, TooLong, Undecodable, Unserializable
from docket.storage.keys import bytes_text, text_bytes

from .instructions import Operator, Strike, StrikeInstruction, shown
from .values import RuleValues

_FORMAT = 2
# The first byte of an envelope. A rule without an envelope begins with another byte.
_SEALED = b"\x01"
Rule = TypeVar("Rule", bound=Strike)

# A rule has a function, a parameter, a value of 4 kB and the text that shows it.
_MOST_BYTES = 16_384


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
        if len(rule) > _MOST_BYTES:
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
