"""What operators change about waiting tasks: their time, or that they run at all
(docs/design/web.md)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from docket.errors import EmptyFilter
from docket.inspection.audit import AuditPage, read_audit
from docket.inspection.chain_times import following_run
from docket.inspection.task_filters import GROUPS, Place, TaskFilter
from docket.inspection.task_pages import MOST_TASKS, find_page
from docket.inspection.task_summaries import TaskSummary
from docket.instrumentation import TASKS_CANCELLED
from docket.ledger.audit import audited
from docket.ledger.changes import Cancelled, Rescheduled, cancel_many, reschedule
from docket.ledger.reports import read_declarations
from docket.model.times import from_ms, to_ms
from docket.pauses import DocketPauses
from docket.spans import request_span

if TYPE_CHECKING:
    from docket.docket import Docket

# A batch reads at most `_MOST_TIMES` the number of
# tasks that there were at its beginning, and `_MORE`.
_MOST_TIMES, _MORE = 2, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelReport:
    """What became of the tasks that matched: `cancelled` ones were waiting, the workers of
    `requested` ones were asked to cancel them, `skipped` ones were other tasks by then, or had
    begun to run. With a `cursor`, the same call goes on there; None if all places were looked at.
    `examined` of about `total` tasks were read so far."""

    cancelled: int = 0
    requested: int = 0
    skipped: int = 0
    cursor: str | None = None
    examined: int = 0
    total: int | None = None


class DocketChanges(DocketPauses):
    """The part of a docket that changes waiting tasks for operators."""

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
        task = (await self.ledger.get(key)).task
        if task is None:
            return None
        seen_ms = to_ms(due) if due is not None else task.due_ms
        declared = await read_declarations(self.ledger, [task.function_name])
        when = following_run(declared.get(task.function_name, {}), from_ms(seen_ms), self._docket.now())
        if when is None:
            raise ValueError(
                f"skip({key!r}): no worker has declared a cron expression or an interval for the function "
                f"{task.function_name!r}"
            )
        moved = await self._reschedule("skip", key, to_ms(when), from_ms(seen_ms), f"{key} to {when.isoformat()}")
        return when if moved else None

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
        async with audited(self.ledger, "cancel_matching", about) as entry:
            with request_span(self._docket, "cancel_matching"):
                report = await self._cancel(filter.within(places), running, cursor, patience)
            entry.count = report.cancelled + report.requested
            entry.outcome = "done" if report.cursor is None else "goes on"
        TASKS_CANCELLED.add(report.cancelled, self.labels())
        return report

    async def audit(
        self, *, cursor: str | None = None, size: int = 50, who: str | None = None, action: str | None = None
    ) -> AuditPage:
        """Who changed what: a page of the changes that were written down, the newest first, of all
        or of one person or action."""
        return await read_audit(self._docket, cursor=cursor, size=size, who=who, action=action)

    @property
    def _docket(self) -> Docket:
        return cast("Docket", self)

    async def _reschedule(self, action: str, key: str, due_ms: float, seen: datetime | None, about: str) -> bool:
        async with audited(self.ledger, action, about) as entry:
            with request_span(self._docket, action, {"docket.key": key}):
                became, _ = await reschedule(self.ledger, key, due_ms, to_ms(seen) if seen is not None else None)
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
            for became in await cancel_many(self.ledger, [_fence(task) for task in page.tasks], with_running=running):
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


def _fence(task: TaskSummary) -> tuple[str, int, int]:
    return task.key, task.generation, task.submission
