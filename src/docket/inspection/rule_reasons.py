"""The reasons of tasks that a rule of an operator keeps from running: a strike or a pause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from docket.ledger.facts import TaskFacts
from docket.storage.records import TaskRecord

from .limit_reasons import LimitReasons
from .reason_writer import counted
from .reasons import Reason, ReasonCode

if TYPE_CHECKING:
    from docket.docket import Docket


class RuleReasons(LimitReasons):
    """Strikes end tasks, pauses hold them."""

    def __init__(self, docket: Docket, key: str, facts: TaskFacts) -> None:
        super().__init__(key, facts)
        self._docket = docket

    # Strikes

    def _struck(self, task: TaskRecord) -> Iterator[Reason]:
        strikes = self._docket.strike_list.in_effect
        rules = [s.call_repr() for s in strikes if s.parameter is None and s.function == task.function_name]
        if rules:
            words = f"The task is struck by {rules[0]}: while the strike is in force, a worker cancels it instead of running it."
            yield self._reason(ReasonCode.STRUCK, words, rule=rules[0])

    def _may_be_struck(self, task: TaskRecord) -> Iterator[Reason]:
        strikes = self._docket.strike_list.in_effect
        rules = [s for s in strikes if s.parameter is not None and s.function in (None, task.function_name)]
        if rules:
            those = "1 strike compares" if len(rules) == 1 else f"{len(rules):,} strikes compare"
            words = f"{those} arguments of the task, which only workers read: the task may be struck."
            yield self._reason(ReasonCode.MAY_BE_STRUCK, words, rule=rules[0].call_repr())

    # Pauses

    def _held(self) -> Iterator[Reason]:
        hold = self._facts.hold
        if hold is None:
            return
        pause, place = self._docket.pause_store.open(hold[0]), hold[1]
        words = f"The task is held, because {pause} was paused {self._ago(hold[0].epoch / 1000)}"
        if pause.is_resuming:
            words = f"The task is held: {pause} is being resumed, and its tasks go on in order"
        words += f"; {counted(place, 'task')} {'is' if place == 1 else 'are'} before it."
        facts = {"before": place, "before_is_exact": True}
        yield self._reason(ReasonCode.HELD, words, rule=str(pause), since=pause.since, **facts)

    def _will_be_held(self) -> Iterator[Reason]:
        stored = self._facts.pause
        if stored is not None:
            pause = self._docket.pause_store.open(stored)
            words = f"The pause of {pause} holds the task as soon as a worker claims it."
            yield self._reason(ReasonCode.WILL_BE_HELD, words, rule=str(pause), since=pause.since)

    def _may_be_held(self) -> Iterator[Reason]:
        comparing = self._facts.number("comparing_pauses")
        if comparing:
            those = "1 pause compares" if comparing == 1 else f"{comparing:,} pauses compare"
            words = f"{those} arguments of the task, which only workers read: the task may be held."
            yield self._reason(ReasonCode.MAY_BE_HELD, words)
