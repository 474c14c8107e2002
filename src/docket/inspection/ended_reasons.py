"""The reasons of keys that have no unfinished task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docket.errors import Undecodable, UnknownVersion
from docket.ledger import Ending, read_ending
from docket.ledger.facts import TaskFacts
from docket.ledger.letters import BuriedChain, finished_record
from docket.model.states import ExecutionState
from docket.model.times import format_duration, from_ms
from docket.storage.records import FinishedRecord

from .reason_writer import ReasonWriter, shortened
from .reasons import Reason, ReasonCode


class EndedReasons(ReasonWriter):
    """What became of a task that is not there any more, or never was."""

    def __init__(self, docket: str, key: str, facts: TaskFacts) -> None:
        super().__init__(key, facts)
        self._docket = docket

    def all(self) -> Iterator[Reason]:
        facts, buried, foreign = self._facts, self._facts.buried, "foreign" in self._facts.facts
        cancelled_ms = facts.time_ms("chain_cancelled")
        try:
            record, kept = facts.read_finished(), facts.read_letter()
            letter = finished_record(kept) if kept is not None else None
            endings = [read_ending(found.tail) if found is not None else Ending() for found in (record, letter)]
        except (Undecodable, UnknownVersion) as problem:
            yield self._reason(ReasonCode.UNREADABLE, f"The task has ended, and its record cannot be read: {problem}.")
            return
        if buried is not None:
            yield self._buried(buried)
        # A key may be used again after its failure: what it did last counts.
        if record is not None and (letter is None or record.completed_ms > letter.completed_ms):
            yield self._finished(record, endings[0])
        if letter is not None:
            yield self._letter(letter, endings[1])
        if cancelled_ms is not None and buried is None:
            words = f"The chain of this automatic task was ended {self._ago(cancelled_ms)}: "
            words += "the next deploy begins it again, or somebody who adds it."
            yield self._reason(ReasonCode.CHAIN_CANCELLED, words, since=from_ms(cancelled_ms))
        if foreign:
            words = "pydocket has left this task, which docket does not run: it waits for `docket import`."
            yield self._reason(ReasonCode.LEFT_BY_PYDOCKET, words)
        if record is None and letter is None and buried is None and cancelled_ms is None and not foreign:
            yield self._never_heard_of()

    def _buried(self, buried: BuriedChain) -> Reason:
        words = f"This automatic task was buried {self._ago(buried.since_ms)}: workers do not start it "
        words += "until its letter is retried (docket dead retry)."
        return self._reason(ReasonCode.BURIED, words, state=ExecutionState.FAILED, since=from_ms(buried.since_ms))

    def _finished(self, record: FinishedRecord, ending: Ending) -> Reason:
        words = f"The task {_ended_words(record.state)} {self._ago(record.completed_ms)}"
        error = f": {shortened(ending.error)}" if ending.error else ""
        return self._reason(ReasonCode.FINISHED, f"{words}{error}.", **_facts(record, ending))

    def _letter(self, letter: FinishedRecord, ending: Ending) -> Reason:
        error = f": {shortened(ending.error)}" if ending.error else ""
        words = f"The task failed {self._ago(letter.completed_ms)} and is kept as a dead letter{error}."
        return self._reason(ReasonCode.DEAD_LETTER, words, **_facts(letter, ending))

    def _never_heard_of(self) -> Reason:
        key, declared = self._common["key"], self._facts.execution_ttl_ms
        words = f"Docket {self._docket!r} has no task {key!r} and no record of one: "
        words += "it was never added, or it ended and its record has expired"
        if len(declared) == 1:
            words += f" (records of finished tasks are kept for {format_duration(declared.pop() / 1000)})"
        return self._reason(ReasonCode.NEVER_HEARD_OF, f"{words}.")


def _facts(record: FinishedRecord, ending: Ending) -> dict[str, Any]:
    return {
        "state": record.state,
        "function": record.task.function_name,
        "attempt": record.task.attempt,
        "worker": ending.worker,
        "error": ending.error,
        "since": from_ms(record.completed_ms),
    }


def _ended_words(state: ExecutionState) -> str:
    return "was cancelled" if state is ExecutionState.CANCELLED else state.value
