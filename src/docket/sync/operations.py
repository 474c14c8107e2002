"""What operators do with a sync docket: strikes, pauses, and questions about tasks and workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from docket.execution import ExecutionState, TaskFunction
from docket.inspection.audit import AuditPage
from docket.inspection.history import LIMIT, Endings
from docket.inspection.snapshot import DocketSnapshot, WorkerInfo
from docket.inspection.statistics import Stats
from docket.inspection.task_filters import TaskFilter
from docket.ledger.history import FinishedRun
from docket.operator_verbs import CancelReport
from docket.strikelist import LiteralOperator, Operator
from docket.strikelist.pauses import Pause

from .producer import Producer


class DocketOperations:
    """The part of a sync docket that operators use."""

    _producer: Producer

    # Waiting tasks

    def clear(
        self,
        *,
        function: TaskFunction | str | None = None,
        key_prefix: str | None = None,
        state: ExecutionState | None = None,
    ) -> int:
        """Cancels all waiting tasks, or those of a function, with keys that begin with a prefix, or
        in the state SCHEDULED or QUEUED. Running tasks go on. Returns how many were removed."""
        selected: dict[str, Any] = {"function": function, "key_prefix": key_prefix, "state": state}
        return self._producer.run(lambda docket: docket.clear(**selected))

    def cancel_matching(
        self,
        filter: TaskFilter,
        *,
        running: bool = False,
        everything: bool = False,
        cursor: str | None = None,
        patience: timedelta | None = None,
    ) -> CancelReport:
        """Cancels the waiting tasks that match, and with `running` also the running ones, in small
        steps. Ends after about `patience` with a cursor. Raises as `cancel_matching` of the async
        docket."""
        options: dict[str, Any] = {"running": running, "everything": everything, "cursor": cursor}
        return self._producer.run(lambda docket: docket.cancel_matching(filter, patience=patience, **options))

    def reschedule(self, key: str, when: datetime, *, due: datetime | None = None) -> bool:
        """Moves a scheduled task to another time. Returns False, and changes nothing, if the task
        is not in the schedule, or if `due` is given and is not its due time."""
        return self._producer.run(lambda docket: docket.reschedule(key, when, due=due))

    def run_now(self, key: str, *, due: datetime | None = None) -> bool:
        """Makes a scheduled task ready now. Returns False in the same cases as `reschedule`."""
        return self._producer.run(lambda docket: docket.run_now(key, due=due))

    def skip(self, key: str, *, due: datetime | None = None) -> datetime | None:
        """Skips the next run of a perpetual or cron task. Returns the time of the one after it, or
        None in the cases in which `reschedule` returns False. Raises ValueError if no worker has
        declared when the function runs."""
        return self._producer.run(lambda docket: docket.skip(key, due=due))

    # Strikes

    def strike(
        self,
        function: TaskFunction | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Blocks tasks by function, by the value of a parameter, or by both, before they are
        scheduled and before they run. Raises as `strike` of the async docket."""
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

    # Pauses

    def pause(
        self,
        function: TaskFunction | str,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> Pause:
        """Holds the tasks of a function, or those with such an argument, until `resume`. `"*"` is
        every function. Raises as `pause` of the async docket."""
        return self._producer.run(lambda docket: docket.pause(function, parameter, operator, value))

    def resume(
        self,
        function: TaskFunction | str | Pause,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> int:
        """Removes the pause with equal arguments, or one of `pauses()`, and lets its tasks go on in
        order. Returns how many it held. Raises NotPaused if there is none."""
        return self._producer.run(lambda docket: docket.resume(function, parameter, operator, value))

    def pauses(self) -> list[Pause]:
        """The pauses, oldest first, with the number of tasks that each one holds."""
        return self._producer.run(lambda docket: docket.pauses())

    # Queries

    def snapshot(self) -> DocketSnapshot:
        """All waiting and running tasks, and the workers. Its executions are those of the async
        docket: `get_execution(key)` has the handle to wait on."""
        return self._producer.run(lambda docket: docket.snapshot())

    def stats(
        self,
        function: TaskFunction | str | None = None,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
    ) -> Stats:
        """How runs ended, from `since`, a time or a duration before `until`, until now."""
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
        """The runs that finished lately, newest first, as `history` of the async docket answers."""
        selected: dict[str, Any] = {"key": key, "endings": endings, "since": since, "until": until}
        return self._producer.run(lambda docket: docket.history(function, before=before, limit=limit, **selected))

    def audit(
        self, *, cursor: str | None = None, size: int = 50, who: str | None = None, action: str | None = None
    ) -> AuditPage:
        """Who changed what: a page of the changes, the newest first, of all or of one person or
        action."""
        return self._producer.run(lambda docket: docket.audit(cursor=cursor, size=size, who=who, action=action))

    def workers(self) -> list[WorkerInfo]:
        """The live workers."""
        return self._producer.run(lambda docket: docket.workers())

    def task_workers(self, task_name: str) -> list[WorkerInfo]:
        """The live workers that know a task function."""
        return self._producer.run(lambda docket: docket.task_workers(task_name))
