"""The verbs of operators: strikes and pauses, changes of
waiting tasks, and questions about tasks and workers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from docket.dead import DeadLetters
from docket.errors import EmptyFilter
from docket.execution import ExecutionState, TaskFunction
from docket.execution.context import DocketContext
from docket.inspection.audit import AuditPage, read_audit
from docket.inspection.filters import GROUPS, TaskFilter
from docket.inspection.functions import following_run
from docket.inspection.history import LIMIT, Endings, read_history
from docket.inspection.reasons import Reason
from docket.inspection.snapshot import DocketSnapshot, WorkerInfo, read_workers, take_snapshot
from docket.inspection.statistics import Stats, read_statistics
from docket.inspection.summaries import TaskSummary
from docket.inspection.tasks import MOST_TASKS, find_page
from docket.inspection.why import find_reason
from docket.instrumentation import TASKS_CANCELLED
from docket.instrumentation.tracing import request_span
from docket.ledger.audit import in_words
from docket.ledger.history import FinishedRun
from docket.ledger.tasks import Cancelled, Rescheduled
from docket.model.places import Place
from docket.model.times import from_ms, to_ms
from docket.registry import name_of
from docket.strikelist import LiteralOperator, Operator, Restore, Strike, StrikeInstruction
from docket.strikelist.instructions import PauseRule
from docket.strikelist.pauses import Pause

ANY = "*"

# A batch reads at most `_MOST_TIMES` the number of
# tasks that there were at its beginning, and `_MORE`.
_MOST_TIMES, _MORE = 2, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelReport:
    """The result of a batch of cancels: `cancelled` tasks were waiting, the workers of
    `requested` ones were asked to cancel them, `skipped` ones were other tasks by then, or had
    begun to run. With a `cursor`, the same call goes on there; None if all places were looked at.
    `examined` of about `total` tasks were read so far."""

    cancelled: int = 0
    requested: int = 0
    skipped: int = 0
    cursor: str | None = None
    examined: int = 0
    total: int | None = None


class OperatorVerbs(ABC):
    """The verbs of operators. `Docket` adds those of producers."""

    @property
    @abstractmethod
    def _docket(self) -> DocketContext:
        """The docket that has these verbs."""

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
        async with self._docket.ledger.audit.change(instruction.direction, instruction.call_repr()):
            with request_span(self._docket, instruction.direction, instruction.labels()):
                await self._docket.strike_list.send_instruction(instruction)

    # Pauses

    async def pause(
        self,
        function: TaskFunction | str,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> Pause:
        """Holds the tasks of a function, or those with such an argument, until `resume`. `"*"` is
        every function: without a parameter, the whole docket pauses.

        Held tasks wait in order and lose nothing. Tasks that run already go on. From the return of
        this call on, workers claim no task that matches. Pausing again changes nothing. Raises
        ValueError if a name is empty, the operator is unknown or the value of `between` is not a
        pair, Unserializable if the value cannot be stored, and TooManyPauses.
        """
        rule = _rule(function, parameter, operator, value)
        async with self._docket.ledger.audit.change("pause", rule.call_repr()):
            with request_span(self._docket, "pause", rule.labels()):
                return await self._docket.pause_store.pause(rule)

    async def resume(
        self,
        function: TaskFunction | str | Pause,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> int:
        """Removes the pause with equal arguments, or one of `pauses()`, and lets its tasks go on in
        order. Returns how many it held.

        The first tasks go on at once; the workers let the others go on as they take them. Raises
        NotPaused, which says what is paused, if there is no such pause.
        """
        if isinstance(function, Pause):
            return await self._resume_listed(function)
        rule = _rule(function, parameter, operator, value)
        async with self._docket.ledger.audit.change("resume", rule.call_repr()) as entry:
            with request_span(self._docket, "resume", rule.labels()):
                held = entry.count = await self._docket.pause_store.resume(rule)
        return held

    async def _resume_listed(self, pause: Pause) -> int:
        async with self._docket.ledger.audit.change("resume", str(pause)) as entry:
            with request_span(self._docket, "resume"):
                held = entry.count = await self._docket.pause_store.resume_id(pause.id)
        return held

    async def pauses(self) -> list[Pause]:
        """The pauses in force and those that are being resumed, oldest first, with the number of
        tasks that each one holds."""
        return (await self._docket.pause_store.read())[1]

    # Unfinished tasks

    async def cancel(self, key: str) -> None:
        """Removes a waiting task at once. If the task runs, asks its worker to cancel the run. An
        unknown key is not an error."""
        with request_span(self._docket, "cancel", {"docket.key": key}):
            # The worker counts a cancelled run when it has ended.
            became = await self._docket.ledger.tasks.cancel(key)
            if became == 1:
                TASKS_CANCELLED.add(1, self._docket.labels())
        await self._docket.ledger.audit.note_cancel(key, became)

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
        name = _name_or_none(function)
        about = {"function": name, "key_prefix": key_prefix, "state": state and state.value}
        async with self._docket.ledger.audit.change("clear", in_words(about)) as entry:
            with request_span(self._docket, "clear"):
                entry.count = removed = await self._docket.ledger.tasks.clear(name, key_prefix, state)
        TASKS_CANCELLED.add(removed, self._docket.labels())
        return removed

    async def cancel_matching(
        self,
        filter: TaskFilter,
        *,
        running: bool = False,
        everything: bool = False,
        cursor: str | None = None,
        patience: timedelta | None = None,
    ) -> CancelReport:
        """Cancels the waiting tasks that match, and with `running` also the running ones, as
        `cancel` does. Works in small steps, and ends after about `patience` with a cursor.

        A task that is replaced, or begins to run, between the look and the change is skipped.
        Raises EmptyFilter if the filter matches every task, unless `everything` is set.
        """
        if not everything and not filter.compares and filter.places >= GROUPS["waiting"]:
            raise EmptyFilter("cancel_matching() without a filter would cancel every task: pass everything=True")
        places = frozenset(place for place in filter.places if not place.is_finished)
        if not running:
            places -= {Place.RUNNING}
        if not places:
            return CancelReport()
        about = str(filter) or "everything"
        async with self._docket.ledger.audit.change("cancel_matching", about) as entry:
            with request_span(self._docket, "cancel_matching"):
                report = await self._cancel(filter.within(places), running, cursor, patience)
            entry.count = report.cancelled + report.requested
            entry.outcome = "done" if report.cursor is None else "goes on"
        TASKS_CANCELLED.add(report.cancelled, self._docket.labels())
        return report

    async def reschedule(self, key: str, when: datetime, *, due: datetime | None = None) -> bool:
        """Moves a scheduled task to another time; if that time has come, the task is ready at once.
        Attempt and arguments stay.

        Returns False, and changes nothing, if the task is not in the schedule: it runs, is ready or
        held, waits for a limit, or does not exist. With `due` it also has to be the due time of the
        task, so that a task that has run meanwhile does not run again.
        """
        return await self._reschedule("reschedule", key, to_ms(when), due, f"{key} to {when.isoformat()}")

    async def run_now(self, key: str, *, due: datetime | None = None) -> bool:
        """Makes a scheduled task ready now. Pauses, strikes and limits decide as always. Returns
        False in the same cases as `reschedule`. A cron task runs at its next time, too."""
        return await self._reschedule("run_now", key, 0.0, due, key)

    async def skip(self, key: str, *, due: datetime | None = None) -> datetime | None:
        """Skips the next run of a perpetual or cron task: its next run is the one after that.
        Returns the time of that run, or None in the cases in which `reschedule` returns False.

        Raises ValueError if no worker has declared when the function runs.
        """
        task = (await self._docket.ledger.tasks.get(key)).task
        if task is None:
            return None
        seen_ms = to_ms(due) if due is not None else task.due_ms
        declared = await self._docket.ledger.fleet.declarations([task.function_name])
        when = following_run(declared.get(task.function_name, {}), from_ms(seen_ms), self._docket.now())
        if when is None:
            raise ValueError(
                f"skip({key!r}): no worker has declared a cron expression or an interval for the function "
                f"{task.function_name!r}"
            )
        moved = await self._reschedule("skip", key, to_ms(when), from_ms(seen_ms), f"{key} to {when.isoformat()}")
        return when if moved else None

    async def _reschedule(self, action: str, key: str, due_ms: float, seen: datetime | None, about: str) -> bool:
        async with self._docket.ledger.audit.change(action, about) as entry:
            with request_span(self._docket, action, {"docket.key": key}):
                became, _ = await self._docket.ledger.tasks.reschedule(
                    key, due_ms, to_ms(seen) if seen is not None else None
                )
            entry.count = int(became is Rescheduled.MOVED)
            entry.outcome = "done" if became is Rescheduled.MOVED else became.name.lower().replace("_", " ")
        return became is Rescheduled.MOVED

    async def _cancel(
        self, filter: TaskFilter, running: bool, cursor: str | None, patience: timedelta | None
    ) -> CancelReport:
        counts = dict.fromkeys(Cancelled, 0)
        deadline = time.monotonic() + patience.total_seconds() if patience is not None else None
        most: int | None = None
        while True:
            page = await find_page(self._docket, filter, cursor=cursor, size=MOST_TASKS)
            if most is None:
                most = page.examined + _MOST_TIMES * (page.total or 0) + _MORE
            for became in await self._docket.ledger.tasks.cancel_many(
                [_fence(task) for task in page.tasks], with_running=running
            ):
                counts[became] += 1
            cursor = page.cursor
            is_late = deadline is not None and time.monotonic() > deadline
            if cursor is None or is_late or page.examined > most:
                break
        return CancelReport(
            cancelled=counts[Cancelled.CANCELLED],
            requested=counts[Cancelled.REQUESTED],
            skipped=counts[Cancelled.SKIPPED],
            cursor=cursor if page.examined <= most else None,
            examined=page.examined,
            total=page.total,
        )

    # Dead letters

    @property
    def dead(self) -> DeadLetters:
        """The tasks that failed for good: to look at, to retry, to edit or to discard."""
        return DeadLetters(self._docket)

    # Queries

    async def snapshot(self) -> DocketSnapshot:
        """All waiting and running tasks, and the workers.

        A sync docket answers with executions of the async docket, to read: `get_execution(key)` has
        the handle to wait on.
        """
        return await take_snapshot(self._docket)

    async def workers(self) -> list[WorkerInfo]:
        """The live workers."""
        return await read_workers(self._docket.ledger)

    async def task_workers(self, task_name: str) -> list[WorkerInfo]:
        """The live workers that know a task function."""
        return await read_workers(self._docket.ledger, task_name)

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
        return await read_statistics(self._docket, _name_or_none(function), since, until)

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
            self._docket,
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
        return await find_reason(self._docket, key)

    async def audit(
        self, *, cursor: str | None = None, size: int = 50, who: str | None = None, action: str | None = None
    ) -> AuditPage:
        """A page of the audit, the newest change first: who changed what. Of all changes, or those
        of one person or action."""
        return await read_audit(self._docket, cursor=cursor, size=size, who=who, action=action)


def _fence(task: TaskSummary) -> tuple[str, int, int]:
    return task.key, task.generation, task.submission


def _rule(
    function: TaskFunction | str, parameter: str | None, operator: Operator | LiteralOperator, value: Any
) -> PauseRule:
    """An empty name is a mistake. It would widen the rule to the whole docket or function."""
    if function == "":
        raise ValueError(f"the name of the function is empty; {ANY!r} is every function")
    if parameter == "":
        raise ValueError("the name of the parameter is empty; without a parameter, leave it out")
    return PauseRule(_name_or_all(function), parameter, Operator.read(operator), value)


def _name_or_all(function: TaskFunction | str) -> str | None:
    if isinstance(function, str):
        return None if function == ANY else function
    return name_of(function)


def _name_or_none(function: TaskFunction | str | None) -> str | None:
    return function if function is None or isinstance(function, str) else name_of(function)
