"""The verbs of operators for code without an event loop.

`make sync` writes this file from `operator_verbs.py` and `dead/dead_letters.py`: change them there.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Unpack

from docket.dead.batches import Progress, Report
from docket.dead.filters import LetterFilter
from docket.dead.letter import Kind, Letter, LetterPage, Overview
from docket.execution import ExecutionState, TaskFunction
from docket.inspection.audit import AuditPage
from docket.inspection.filters import TaskFilter
from docket.inspection.history import LIMIT, Endings
from docket.inspection.reasons import Reason
from docket.inspection.snapshot import DocketSnapshot, WorkerInfo
from docket.inspection.statistics import Stats
from docket.ledger.history import FinishedRun
from docket.operator_verbs import CancelReport
from docket.strikelist import LiteralOperator, Operator
from docket.strikelist.pauses import Pause

from .producer import Producer, collected


class OperatorVerbs:
    """The verbs of operators. `Docket` adds those of producers."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def strike(
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
        self._producer.run(lambda docket: docket.strike(function, parameter, operator, value))

    def restore(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Removes the strike with equal arguments. Without such a strike, nothing happens."""
        self._producer.run(lambda docket: docket.restore(function, parameter, operator, value))

    def pause(
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
        return self._producer.run(lambda docket: docket.pause(function, parameter, operator, value))

    def resume(
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
        return self._producer.run(lambda docket: docket.resume(function, parameter, operator, value))

    def pauses(self) -> list[Pause]:
        """The pauses in force and those that are being resumed, oldest first, with the number of
        tasks that each one holds."""
        return self._producer.run(lambda docket: docket.pauses())

    def cancel(self, key: str) -> None:
        """Removes a waiting task at once. If the task runs, asks its worker to cancel the run. An
        unknown key is not an error."""
        self._producer.run(lambda docket: docket.cancel(key))

    def clear(
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
        return self._producer.run(lambda docket: docket.clear(function=function, key_prefix=key_prefix, state=state))

    def cancel_matching(
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
        return self._producer.run(
            lambda docket: docket.cancel_matching(
                filter, running=running, everything=everything, cursor=cursor, patience=patience
            )
        )

    def reschedule(self, key: str, when: datetime, *, due: datetime | None = None) -> bool:
        """Moves a scheduled task to another time; if that time has come, the task is ready at once.
        Attempt and arguments stay.

        Returns False, and changes nothing, if the task is not in the schedule: it runs, is ready or
        held, waits for a limit, or does not exist. With `due` it also has to be the due time of the
        task, so that a task that has run meanwhile does not run again.
        """
        return self._producer.run(lambda docket: docket.reschedule(key, when, due=due))

    def run_now(self, key: str, *, due: datetime | None = None) -> bool:
        """Makes a scheduled task ready now. Pauses, strikes and limits decide as always. Returns
        False in the same cases as `reschedule`. A cron task runs at its next time, too."""
        return self._producer.run(lambda docket: docket.run_now(key, due=due))

    def skip(self, key: str, *, due: datetime | None = None) -> datetime | None:
        """Skips the next run of a perpetual or cron task: its next run is the one after that.
        Returns the time of that run, or None in the cases in which `reschedule` returns False.

        Raises ValueError if no worker has declared when the function runs.
        """
        return self._producer.run(lambda docket: docket.skip(key, due=due))

    def snapshot(self) -> DocketSnapshot:
        """All waiting and running tasks, and the workers.

        A sync docket answers with executions of the async docket, to read: `get_execution(key)` has
        the handle to wait on.
        """
        return self._producer.run(lambda docket: docket.snapshot())

    def workers(self) -> list[WorkerInfo]:
        """The live workers."""
        return self._producer.run(lambda docket: docket.workers())

    def task_workers(self, task_name: str) -> list[WorkerInfo]:
        """The live workers that know a task function."""
        return self._producer.run(lambda docket: docket.task_workers(task_name))

    def stats(
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
        return self._producer.run(lambda docket: docket.stats(function, since=since, until=until))

    def history(
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
        return self._producer.run(
            lambda docket: docket.history(
                function, key=key, endings=endings, since=since, until=until, before=before, limit=limit
            )
        )

    def why(self, key: str) -> Reason:
        """Why the task of that key is not running, as data and as one sentence. For a task that
        runs or has ended it says that; an unknown key is not an error."""
        return self._producer.run(lambda docket: docket.why(key))

    def audit(
        self, *, cursor: str | None = None, size: int = 50, who: str | None = None, action: str | None = None
    ) -> AuditPage:
        """A page of the audit, the newest change first: who changed what. Of all changes, or those
        of one person or action."""
        return self._producer.run(lambda docket: docket.audit(cursor=cursor, size=size, who=who, action=action))


class DeadLetters:
    """The tasks of a docket that failed for good: `docket.dead`.

    Filters are keyword arguments; `LetterFilter` has all of them. A filter that is not valid raises
    TypeError or ValueError, and nothing is changed.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def overview(self) -> Overview:
        """How many letters there are, of which kinds, and the buried automatic tasks."""
        return self._producer.run(lambda docket: docket.dead.overview())

    def kinds(self, *, function: Any = None, error: str | type[BaseException] | None = None) -> list[Kind]:
        """The kinds of letters, the most frequent first."""
        return self._producer.run(lambda docket: docket.dead.kinds(function=function, error=error))

    def count(self, **filter: Unpack[LetterFilter]) -> int:
        """The number of letters that match; of all letters without a filter."""
        return self._producer.run(lambda docket: docket.dead.count(**filter))

    def find(self, *, limit: int | None = None, **filter: Unpack[LetterFilter]) -> list[Letter]:
        """The letters that match, the newest first: at most `limit`, or all of them. They are read
        page by page, and nothing is decoded."""
        return self._producer.run(lambda docket: collected(docket.dead.find(limit=limit, **filter)))

    def page(self, *, cursor: str | None = None, size: int = 50, **filter: Unpack[LetterFilter]) -> LetterPage:
        """Some of the letters that match, the newest first, and the cursor of the next page. It
        answers in bounded time, however many letters there are. Raises ValueError for a cursor that
        is not one."""
        return self._producer.run(lambda docket: docket.dead.page(cursor=cursor, size=size, **filter))

    def get(self, which: str | int) -> Letter | None:
        """The letter of an id, or the newest letter of a key, or None. Its arguments are fetched,
        and decoded when they are first used."""
        return self._producer.run(lambda docket: docket.dead.get(which))

    def mark(self) -> int:
        """The id of the newest letter. A batch with this mark concerns no letters that come
        later."""
        return self._producer.run(lambda docket: docket.dead.mark())

    def retry(
        self,
        *,
        over: timedelta | None = None,
        most: int | None = None,
        mark: int | None = None,
        everything: bool = False,
        progress: Progress | None = None,
        **filter: Unpack[LetterFilter],
    ) -> Report:
        """Makes tasks of the letters that match, the oldest first, at most `most`. Each task starts
        with attempt 1; if it fails again, its letter says so (`deaths`).

        `over` spreads their due times evenly over that time. A letter whose key has an unfinished
        task is skipped. The batch concerns letters up to the mark: the newest one when it began, or
        `mark`. If it is interrupted, every letter is either a letter or a task, and the same call
        finishes it. Raises EmptyFilter without a filter and without `everything=True`.
        """
        return self._producer.run(
            lambda docket: docket.dead.retry(
                over=over, most=most, mark=mark, everything=everything, progress=progress, **filter
            )
        )

    def discard(
        self,
        *,
        most: int | None = None,
        mark: int | None = None,
        everything: bool = False,
        progress: Progress | None = None,
        **filter: Unpack[LetterFilter],
    ) -> Report:
        """Deletes the letters that match, the oldest first, at most `most`. Raises EmptyFilter
        without a filter and without `everything=True`."""
        return self._producer.run(
            lambda docket: docket.dead.discard(most=most, mark=mark, everything=everything, progress=progress, **filter)
        )

    def edit(self, which: str | int, /, **arguments: Any) -> Letter:
        """Changes arguments of a letter, by the names of their parameters, and returns the letter.
        It stays a letter until it is retried.

        The function has to be registered here. Raises TypeError for a parameter that it does not
        have, LetterNotFound, LetterChanged if somebody else edits it at the same time, and
        Undecodable if its arguments cannot be read.
        """
        return self._producer.run(lambda docket: docket.dead.edit(which, **arguments))
