"""The life of a task: schedule, stage, settle, cancel, change, read."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from docket.model.states import ExecutionState
from docket.storage.keys import text_bytes
from docket.storage.records import read_finished, read_run, read_task
from docket.storage.schema.locations import SCHEDULED
from docket.storage.schema.requests import FRESH, NOW, REPEAT, REPLACE, SEED, STORED, UNANSWERED

from .calls import Area
from .endings import Ending
from .fleet import as_json
from .letters import NOT_REGISTERED, DeathCause, script_note
from .rows import EnqueueResult, TaskStatus
from .settlements import SETTLE_RESULTS, CompletedItem, Settlement, SettleResult, requeue
from .values import Duty, NewTask, ProgressChange, Seed, SlotOffer, Staged, Unwritten

# Tasks per script call: enough to share the round trip,
# few enough to block the server for only a few ms.
BATCH = 500
# A new task takes the server longer, especially if it has to look up the key.
ENQUEUE_BATCH = 200
# Tasks that one script call cancels.
CANCELLED_AT_ONCE = 100
# The most functions in a reply, and the most tasks that one script call ends.
_MOST_FUNCTIONS = 1000
_MOST_TASKS = 100


class Rescheduled(enum.IntEnum):
    """The result for a task that was to get another due time."""

    NOT_FOUND = 0
    MOVED = 1
    NOT_SCHEDULED = 2
    CHANGED = 3


class Cancelled(enum.IntEnum):
    """The result for a task that was to be cancelled."""

    SKIPPED = 0
    CANCELLED = 1
    REQUESTED = 2


@dataclass(slots=True)
class UnknownFunction:
    """A function whose tasks wait for a worker that knows it: since when, and how many. `is_known`
    means that a live worker knows the function but has no free slot yet."""

    name: str
    since_ms: float
    tasks: int
    is_known: bool


class Tasks(Area):
    """The tasks of one docket."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        return _enqueue_results(await self._calls.run_script("enqueue", _enqueue_rows(tasks)))

    async def enqueue_new(self, values: Sequence[Any]) -> tuple[float, Collection[int]]:
        """Schedules calls with keys that docket has generated: three values per call, as
        enqueue_new.lua takes them. Returns the server's time in ms, and the positions of the calls
        that a repeat has stored before. Calls that are due by then are ready."""
        reply: Any = await self._calls.run_script("enqueue_new", values)
        if type(reply) is int:
            return reply, ()
        now_ms, *stored_before = reply
        return now_ms, stored_before

    async def enqueue_and_wait(
        self, tasks: Sequence[NewTask], wait_ms: int
    ) -> tuple[list[EnqueueResult], int | BaseException]:
        """Enqueues tasks and waits for a replica: how many have confirmed the tasks within
        `wait_ms`, or the error instead of that number."""
        reply, replicas = await self._calls.run_script_and_wait("enqueue", _enqueue_rows(tasks), wait_ms)
        return _enqueue_results(reply), replicas

    def enqueue_blocking(self, client: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Enqueues tasks from a thread, on the thread's own blocking client."""
        return _enqueue_results(self._calls.run_script_blocking(client, "enqueue", _enqueue_rows(tasks)))

    async def settle(
        self, settlements: Sequence[Settlement], offer: SlotOffer | None = None, *, patience: float | None = None
    ) -> list[SettleResult]:
        """Settles runs. Returns a result for each settlement.

        `offer` is a free slot of a worker, for direct delivery.
        """
        offered_by, secret = (offer.worker.encode(), offer.secret) if offer is not None else (False, False)
        worker = settlements[0].worker if settlements else None
        claimed_by = worker.encode() if worker is not None else False
        completed: list[Any] = []
        items: list[Any] = []
        # The positions of the settlements in the answer: the completed runs, then the items.
        positions: list[int] = []
        others: list[int] = []
        seen = set[bytes]()
        for i, s in enumerate(settlements):
            if s.worker != worker:
                items.append(s.row_of_another())
                others.append(i)
            elif type(s.row) is not CompletedItem:
                items.append(s.row)
                others.append(i)
            elif s.row.key in seen:
                items.append(s.row.whole())
                others.append(i)
            else:
                seen.add(s.row.key)
                completed += s.row
                completed.append(s.cell)
                completed += s.measures
                positions.append(i)
        cells = [settlements[i].cell for i in others]
        measures = [value for i in others for value in settlements[i].measures]
        usual = (self._calls.ttl_ms, offered_by, self._calls.offer_ms, items, claimed_by, secret, cells, measures)
        arguments = (*usual, self._calls.keep_ms, completed)
        reply = await self._calls.run_script("settle", arguments, patience)
        if type(reply) is int:
            # All have the same answer.
            return [SETTLE_RESULTS[reply]] * len(settlements)
        if not (positions and others):
            return [SETTLE_RESULTS[code] for code in reply]
        answers = dict(zip([*positions, *others], reply, strict=True))
        return [SETTLE_RESULTS[answers[i]] for i in range(len(settlements))]

    def requeue_blocking(self, client: Any, worker: str, runs: Sequence[tuple[str, int]]) -> None:
        """Requeues runs of that worker, by key and epoch, that have not begun: from a thread, on
        the thread's own blocking client."""
        settlements = [requeue(key, epoch) for key, epoch in runs]
        items, cells = [s.row for s in settlements], [s.cell for s in settlements]
        usual = (
            self._calls.ttl_ms,
            False,
            self._calls.offer_ms,
            items,
            worker.encode(),
            False,
            cells,
            [value for s in settlements for value in s.measures],
        )
        self._calls.run_script_blocking(client, "settle", (*usual, self._calls.keep_ms, []))

    async def stage(self, most: int = BATCH, worker: str | None = None, *, summoned: bool = False) -> Staged:
        """Moves due tasks to the stream. A worker does this only if it is the leader, or if it
        takes over because a task is overdue."""
        name = worker.encode() if worker is not None else False
        moved, now, following, duty = await self._calls.run_script("stage", (most, name, int(summoned)))
        return Staged(moved, float(now), None if following == b"-1" else float(following), Duty(duty))

    async def next_due_ms(self) -> float | None:
        """The due time of the next scheduled task."""
        schedule = text_bytes(self._calls.keys.schedule)
        head = await self._calls.server.ask(schedule, "ZRANGE", schedule, 0, 0, "WITHSCORES")
        return float(head[1]) if head else None

    async def cancel(self, key: str, function: str | None = None) -> int:
        """Cancels a task, if it is one of that function. Returns 0 if there is no such unfinished
        task, 1 if the task is cancelled, 2 if its worker was asked to cancel it."""
        name = text_bytes(function) if function is not None else False
        return await self._calls.run_script("cancel", (text_bytes(key), self._calls.ttl_ms, name))

    async def clear(
        self,
        function: str | None = None,
        key_prefix: str | None = None,
        state: ExecutionState | None = None,
        *,
        ends_chains: bool = False,
    ) -> int:
        """Cancels the waiting tasks that match. With `ends_chains` the chains of automatic tasks
        stay cancelled, as after `cancel`."""
        number = -1 if state is None else int(state is ExecutionState.QUEUED)
        texts = [False if text is None else text_bytes(text) for text in (function, key_prefix)]
        cursor, removed = "0", 0
        while True:
            arguments = (cursor, 200, self._calls.ttl_ms, number, *texts, int(ends_chains))
            cursor, count = await self._calls.run_script("clear", arguments)
            removed += count
            cursor = cursor.decode()
            if cursor == "0":
                return removed

    async def progress(self, changes: Sequence[ProgressChange]) -> list[bytes | Unwritten]:
        """Changes the progress of tasks. Returns the new progress of each task as JSON."""
        reply = await self._calls.run_script("progress", [change.row() for change in changes])
        return [answer if isinstance(answer, bytes) else Unwritten(answer) for answer in reply]

    async def claim_by_key(self, key: str, worker: str, lease_id: str, lease_ms: int) -> tuple[float, int]:
        """Claims a task by key for a caller that runs it without a
        worker, and gives the run a lease. Returns the server's time
        in ms and the epoch, which is 0 if the task is not waiting."""
        now, epoch = await self._calls.run_script(
            "claim_by_key", (text_bytes(key), text_bytes(lease_id), as_json(worker), lease_ms)
        )
        return now, epoch

    async def renew_manual_leases(self, lease_ids: Sequence[str], lease_ms: int) -> None:
        """Renews the leases of manual runs."""
        await self._calls.run_script(
            "renew_manual_leases", (lease_ms, [text_bytes(lease_id) for lease_id in lease_ids])
        )

    async def get(self, key: str, *, to_wait: bool = False) -> TaskStatus:
        """Reads the records of a task. A caller that waits for the task also gets the secret that
        proves endings."""
        fresh = self._calls.fresh_secret if to_wait else False
        task, run, progress, finished, secret, failed = await self._calls.run_script("get", (text_bytes(key), fresh))
        return TaskStatus(
            read_task(task) if task is not None else None,
            read_run(run) if run else None,
            progress or None,
            read_finished(finished) if finished else None,
            secret,
            failed or None,
        )

    async def seedable(self, deploy: str, names: Sequence[str]) -> list[Seed]:
        """Decides for each automatic task whether a worker of this deploy schedules it."""
        reply = await self._calls.run_script("seed", (deploy, [text_bytes(name) for name in names]))
        return [Seed(code) for code in reply]

    async def next_due(self) -> tuple[int, float | None]:
        """The number of tasks that are ready or running, and the next due time."""
        _, busy, due = await self._calls.run_script("next_due", ())
        return busy, None if float(due) < 0 else float(due)

    async def reschedule(self, key: str, due_ms: float, seen_ms: float | None = None) -> tuple[Rescheduled, float]:
        """Moves a task of the schedule to another due time, 0 for now, if its due time is the one
        that the caller has seen. Returns its due time."""
        seen = False if seen_ms is None else seen_ms
        code, due = await self._calls.run_script("reschedule", (text_bytes(key), due_ms, seen))
        return Rescheduled(code), float(due)

    async def cancel_many(self, tasks: Sequence[tuple[str, int, int]], *, with_running: bool) -> list[Cancelled]:
        """Cancels tasks, given by key, generation and
        submission, unless they are other ones by now."""
        found: list[Cancelled] = []
        for first in range(0, len(tasks), CANCELLED_AT_ONCE):
            rows = [
                (text_bytes(key), generation, submission)
                for key, generation, submission in tasks[first : first + CANCELLED_AT_ONCE]
            ]
            found += [
                Cancelled(code)
                for code in await self._calls.run_script("cancel_many", (self._calls.ttl_ms, int(with_running), rows))
            ]
        return found

    async def unknown_functions(self) -> list[UnknownFunction]:
        reply = await self._calls.run_script("unknown_functions", (_MOST_FUNCTIONS,))
        return [
            UnknownFunction(name.decode("utf-8", "backslashreplace"), float(since), tasks, bool(known))
            for name, since, tasks, known in reply
        ]

    async def fail_unknown(self, function: str, ending: Ending, event: str) -> int:
        """Fails tasks of a function that no live worker knows. Returns their number: 0 if a live
        worker knows the function or no task waits."""
        note = script_note(self._calls.keep, DeathCause.FAILED, NOT_REGISTERED, ending.error or "")
        return await self._calls.run_script(
            "fail_unknown", (text_bytes(function), self._calls.ttl_ms, ending.pack(), event, _MOST_TASKS, note.row())
        )


def _enqueue_rows(tasks: Sequence[NewTask]) -> list[Any]:
    return [_enqueue_row(task) for task in tasks]


def _enqueue_row(task: NewTask) -> tuple[Any, ...]:
    row = (text_bytes(task.key), task.due_ms, _mode(task), text_bytes(task.function_name), task.call, task.attempt)
    if task.options is not None:
        return (*row, task.key_end, task.options)
    return (*row, task.key_end) if task.key_end is not None else row


def _enqueue_results(reply: Sequence[Any]) -> list[EnqueueResult]:
    return [
        EnqueueResult(
            reply[i] in (1, 2),
            reply[i + 1],
            reply[i + 2],
            ExecutionState.SCHEDULED if reply[i + 3] == SCHEDULED else ExecutionState.QUEUED,
            reply[i] == 2,
            reply[i] == 3,
        )
        for i in range(1, len(reply), 4)
    ]


def _mode(task: NewTask) -> int:
    mode = NOW if task.now else 0
    if task.payload is not None:
        mode |= STORED
    if task.seed:
        mode |= SEED
    if task.unanswered:
        return mode | UNANSWERED | REPEAT
    if task.replace:
        mode |= REPLACE
    if task.is_repeat:
        mode |= REPEAT
    return mode | FRESH if task.fresh else mode
