"""The pauses of a docket (docs/design/pause.md). The server has them; nothing is kept here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from docket.codec import Payloads
from docket.codec.packing import pack, unpack
from docket.errors import NotPaused, TooManyPauses, Undecodable, UnknownKey, UnknownVersion
from docket.ledger import Ledger
from docket.ledger.rules import (
    MOST_PAUSES,
    WHOLE_DOCKET,
    StoredPause,
    StoredPauses,
    function_rule,
    paused_function,
)
from docket.model.texts import escaped
from docket.model.times import from_ms
from docket.storage.keys import bytes_text, text_bytes

from .conditions import is_same
from .instructions import Operator, PauseRule
from .stored import RuleValues, StoredRules

_LISTED = 5


@dataclass(frozen=True)
class Pause:
    """A rule that holds matching tasks: those of a function, those with such an argument, or both.

    Without a `function` it is about every function; without a `parameter`, about every call. `held`
    is the number of tasks that it holds now. While `is_resuming`, these go on, a few at a time.
    `problem` says why this process cannot read the rule, if it cannot. `needs_other` is then
    whether another process may be able to: one with other keys, or of a newer release.
    """

    id: str
    function: str | None
    parameter: str | None
    operator: Operator
    value: Any
    since: datetime
    held: int
    is_resuming: bool
    problem: str | None = None
    needs_other: bool = False

    def __str__(self) -> str:
        if self.problem is not None:
            return f"pause {escaped(self.id)}"
        return self.rule.call_repr()

    @property
    def rule(self) -> PauseRule:
        """The rule: which tasks the pause holds."""
        return PauseRule(self.function, self.parameter, self.operator, self.value)


class PauseStore:
    """Reads and writes the pauses of one docket."""

    def __init__(self, ledger: Ledger, values: RuleValues, payloads: Payloads) -> None:
        self._ledger = ledger
        self._stored = StoredRules(PauseRule, values, payloads)

    async def pause(self, rule: PauseRule) -> Pause:
        """Raises ValueError, Unserializable or TooLong for a rule that cannot be stored, and
        TooManyPauses."""
        rule.check()
        id, encoded = self._encode(rule)
        # Equal values may have different bytes (1 and 1.0, or a set in another order).
        same = await self._same(id, rule)
        stored = await self._ledger.pauses.store(same[0] if same else id, encoded)
        if stored is None:
            raise TooManyPauses(f"the docket has {MOST_PAUSES:,} pauses already; resume some, or pause whole functions")
        return self.open(stored)

    async def resume(self, rule: PauseRule) -> int:
        """Returns how many tasks the pause held. Raises NotPaused if there is none."""
        id, _ = self._encode(rule)
        same = await self._same(id, rule)
        held = [found for found in [await self._ledger.pauses.resume(id) for id in same or [id]] if found is not None]
        if not held:
            raise not_paused(rule.call_repr(), (await self.read())[1])
        return sum(held)

    async def resume_id(self, id: str) -> int:
        """Ends a pause by its id, also one that cannot be read."""
        held = await self._ledger.pauses.resume(id)
        if held is None:
            raise not_paused(f"pause {escaped(id)}", (await self.read())[1])
        return held

    async def read(self) -> tuple[bytes, list[Pause]]:
        """The version of the rules that compare arguments, and all pauses, oldest first."""
        rules: StoredPauses = await self._ledger.pauses.read()
        return rules.version, [self.open(stored) for stored in rules.pauses]

    async def _same(self, id: str, rule: PauseRule) -> list[str]:
        """The ids of the pauses with equal values. Empty if the id is right as it is."""
        if rule.parameter is None:
            return []
        _, pauses = await self.read()
        if any(pause.id == id for pause in pauses):
            return []
        return [pause.id for pause in pauses if pause.problem is None and is_same(pause.rule, rule)]

    def _encode(self, rule: PauseRule) -> tuple[str, bytes]:
        """The id and the stored bytes: the rule, and its function in front of it. A process that
        cannot open the rule has to know which tasks it may be about."""
        id, encoded = self._stored.encode(rule)
        if rule.parameter is None:
            id = WHOLE_DOCKET if rule.function is None else function_rule(rule.function)
        return id, pack((None if rule.function is None else text_bytes(rule.function), encoded))

    def open(self, stored: StoredPause) -> Pause:
        """The pause, with its `problem` if it cannot be read. Whoever writes to the server may have
        written the rule. Scripts look up the rules of functions by their ids, so for these the id
        counts."""
        rule, problem, needs_other = PauseRule(paused_function(stored.id)), None, False
        if stored.id != WHOLE_DOCKET and rule.function is None:
            try:
                rule.function, encoded = _parts(stored.rule)
                rule = self._stored.decode(encoded)
            except Undecodable as error:
                problem, needs_other = str(error), isinstance(error, UnknownKey | UnknownVersion)
        return Pause(
            stored.id,
            rule.function,
            rule.parameter,
            rule.operator,
            rule.value,
            from_ms(stored.epoch / 1000),
            stored.held,
            stored.is_resuming,
            problem,
            needs_other,
        )


def _parts(stored: bytes) -> tuple[str | None, bytes]:
    try:
        function, rule = unpack(stored)
    except (ValueError, TypeError):
        raise Undecodable("it is not a rule") from None
    if not isinstance(rule, bytes) or not isinstance(function, bytes | None):
        raise Undecodable("it is not a rule")
    return None if function is None else bytes_text(function), rule


def not_paused(what: str, pauses: Iterable[Pause]) -> NotPaused:
    known = [str(pause) for pause in pauses]
    if not known:
        return NotPaused(f"{what} is not paused; nothing is")
    listed = "; ".join(known[:_LISTED]) + (f"; and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
    return NotPaused(f"{what} is not paused; paused are: {listed}")
