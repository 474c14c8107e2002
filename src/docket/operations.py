"""What operators do with a docket: strikes and pauses, and questions about tasks and workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from docket.changes import DocketChanges
from docket.dead import DeadLetters
from docket.execution import ExecutionState, TaskFunction
from docket.inspection.history import LIMIT, Endings, read_history
from docket.inspection.reasons import Reason
from docket.inspection.snapshot import DocketSnapshot, WorkerInfo, read_workers, take_snapshot
from docket.inspection.statistics import Stats, read_statistics
from docket.inspection.why import find_reason
from docket.instrumentation import TASKS_CANCELLED
from docket.ledger.audit import audited, in_words
from docket.ledger.history import FinishedRun
from docket.ledger.queries import Query
from docket.registry import name_of
from docket.spans import request_span
from docket.strikelist import LiteralOperator, Operator, Restore, Strike, StrikeInstruction

if TYPE_CHECKING:
    from docket.docket import Docket


class DocketOperations(DocketChanges):
    """The part of a docket that operators use. `Docket` adds the verbs of producers."""

    @property
    def _itself(self) -> Docket:
        return cast("Docket", self)

    # Strikes

    async def strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Blocks tasks by function, by the value of a parameter, or by both, before they are
        scheduled and before they run.

        Returns when the server has stored the strike and this process applies it; other processes
        apply it within milliseconds. A task that runs already goes on. Raises ValueError if neither
        a function nor a parameter is given, if the operator is unknown or if the value of `between`
        is not a pair, and Unserializable if the value cannot be stored.
        """
        await self._instruct(Strike(_name_or_none(function), parameter, Operator.read(operator), value))

    async def restore(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Removes the strike with equal arguments. Without such a strike, nothing happens."""
        await self._instruct(Restore(_name_or_none(function), parameter, Operator.read(operator), value))

    async def _instruct(self, instruction: StrikeInstruction) -> None:
        async with audited(self.ledger, instruction.direction, instruction.call_repr()):
            with request_span(self._itself, instruction.direction, instruction.labels()):
                await self.strike_list.send_instruction(instruction)

    async def wait_for_strikes_loaded(self) -> None:
        """Returns when this process applies every strike that was in force when the docket was
        opened."""
        await self.strike_list.wait_for_strikes_loaded()

    # Dead letters

    @property
    def dead(self) -> DeadLetters:
        """The tasks that failed for good: to look at, to retry, to edit or to discard."""
        return DeadLetters(self._itself)

    # Waiting tasks

    async def clear(
        self,
        *,
        function: TaskFunction | str | None = None,
        key_prefix: str | None = None,
        state: ExecutionState | None = None,
    ) -> int:
        """Cancels all waiting tasks, or those of a function, with keys that begin with a prefix, or
        in the state SCHEDULED or QUEUED. Running tasks go on. Returns how many tasks were removed.

        Raises ValueError for another state.
        """
        if state not in (None, ExecutionState.SCHEDULED, ExecutionState.QUEUED):
            raise ValueError(f"clear(state={state.value}): only waiting tasks are cleared: scheduled or queued")
        query = Query(state, _name_or_none(function), key_prefix)
        about = {"function": query.function, "key_prefix": key_prefix, "state": state and state.value}
        async with audited(self.ledger, "clear", in_words(about)) as entry:
            with request_span(self._itself, "clear"):
                entry.count = removed = await self.ledger.clear(query.filter)
        TASKS_CANCELLED.add(removed, self.labels())
        return removed

    # Queries

    async def snapshot(self) -> DocketSnapshot:
        """All waiting and running tasks, and the workers."""
        return await take_snapshot(self._itself)

    async def workers(self) -> list[WorkerInfo]:
        """The live workers."""
        return await read_workers(self.ledger)

    async def task_workers(self, task_name: str) -> list[WorkerInfo]:
        """The live workers that know a task function."""
        return await read_workers(self.ledger, task_name)

    async def stats(
        self,
        function: TaskFunction | str | None = None,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
    ) -> Stats:
        """How runs ended, how long they took and how long their tasks had waited, per function:
        from `since`, a time or a duration before `until`, by default an hour, until now.

        The counts are exact, in whole minutes for the last three hours and in whole hours for the
        last 30 days. Raises ValueError if `since` is after `until`.
        """
        return await read_statistics(self._itself, _name_or_none(function), since, until)

    async def history(
        self,
        function: TaskFunction | str | None = None,
        *,
        key: str | None = None,
        endings: Endings | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = LIMIT,
    ) -> list[FinishedRun]:
        """The runs that finished lately, newest first: every failure, and samples of the others. A
        function that fails very often has some of its failures there: see `FinishedRun.left_out`.

        `endings` is an `EndingKind` or several. `since` is a time or a duration before `until`.
        `before` is the id of a finished run: the answer goes on with older ones. docket keeps
        failures for `keep_failures`, and for 7 days at most, all others for a day, and about 10,000
        of each. Raises ValueError for an unknown ending kind, a limit below 1, an id that is not
        one, and if `since` is after `until`.
        """
        return await read_history(
            self._itself,
            _name_or_none(function),
            key=key,
            endings=endings,
            since=since,
            until=until,
            before=before,
            limit=limit,
        )

    async def why(self, key: str) -> Reason:
        """Why the task of that key is not running, as data and as one sentence. For a task that
        runs or has ended it says that; an unknown key is not an error."""
        return await find_reason(self._itself, key)


def _name_or_none(function: TaskFunction | str | None) -> str | None:
    return function if function is None or isinstance(function, str) else name_of(function)
