"""Tasks that this worker cannot run now, but another worker may, or this one later: how long they
wait, and what becomes of tasks whose function no live worker knows."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

from docket.dependencies import current_execution
from docket.errors import TaskNotRegistered
from docket.instrumentation import TASKS_FAILED
from docket.ledger import SettleResult
from docket.ledger.endings import ending_event, own_ending
from docket.model.states import ExecutionState
from docket.worker.running.runs import Slots

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")

FIRST_MS = 1000
# How many keys are remembered. The oldest are dropped first.
MOST_REMEMBERED = 1000
LONGEST_MS = 60_000
# If many such tasks wait, this worker gives back one of them in this time.
PACE_SECONDS = 0.005
LONGEST_PACE_MS = 600_000
# The server delivers a task to the worker that offered a slot last. A worker that cannot read the
# task is ready again at once, so it would get the task again and again.
NO_OFFERS_SECONDS = 5.0
# How many keys are remembered for a worker that has to end.
MOST_KEYS = 100_000
# How many different reasons are logged. Whoever writes records could invent any number.
MOST_REASONS = 100


class RedeliveryDelays:
    """How long a task waits for its next delivery. The delay is one second at first. It doubles
    with each further failure of the same task."""

    def __init__(self, most_ms: float) -> None:
        self._most_ms = most_ms
        self._last_ms: dict[str, float] = {}

    def next_ms(self, key: str) -> float:
        last = self._last_ms.pop(key, None)
        delay = min(FIRST_MS if last is None else last * 2, self._most_ms)
        self._last_ms[key] = delay
        if len(self._last_ms) > MOST_REMEMBERED:
            del self._last_ms[next(iter(self._last_ms))]
        return delay


class DeferredTasks:
    """Tasks that another worker may be able to run: of a newer release, sealed with a key that this
    worker does not have, or for a child process that the system cannot start. Decides how long such
    a task waits until its next delivery. Logs each reason once, not once per task."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        # How often each task was left that this worker cannot read.
        self._times: dict[str, int] = {}
        self._delays = RedeliveryDelays(LONGEST_MS)
        self._reasons: set[str] = set()
        self._paced_until = 0.0

    def delay_ms(self, key: str, reason: str) -> float:
        """A second at first, then twice as long each time, up to a minute; less a random part, so
        that tasks do not come back together. Longer if there are very many such tasks: neither the
        worker nor the server should be busy with them."""
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            logger.warning("task %r and others like it are left for other workers: %s", key, reason)
        now = time.monotonic()
        self._slots.offers_from = now + NO_OFFERS_SECONDS
        self._paced_until = max(self._paced_until, now) + PACE_SECONDS
        pace_ms = min((self._paced_until - now) * 1000, LONGEST_PACE_MS)
        return max(self._delays.next_ms(key) * random.uniform(0.5, 1), pace_ms)

    def note_unreadable(self, key: str) -> None:
        """This worker can never run the task."""
        if key in self._times or len(self._times) < MOST_KEYS:
            self._times[key] = self._times.get(key, 0) + 1

    @property
    def count(self) -> int:
        """How many tasks this worker could not read, those that have ended since included."""
        return len(self._times)

    def forget_except(self, keys: set[str]) -> None:
        """The tasks of all other keys have ended."""
        self._times = {key: times for key, times in self._times.items() if key in keys}

    def has_left(self, keys: set[str], times: int) -> bool:
        """Whether each of these tasks was left at least this many times."""
        return all(self._times.get(key, 0) >= times for key in keys)


def not_registered(name: str) -> TaskNotRegistered:
    return TaskNotRegistered(
        f"no live worker knows the task {name!r}: register the function with the worker's docket, or give --tasks"
    )


class UnknownFunctions:
    """Reports unknown functions. A worker that runs until all tasks are finished also fails the
    tasks whose function no live worker knows."""

    def __init__(self, worker: Worker, *, has_to_end: bool) -> None:
        self._worker = worker
        self.has_to_end: bool = has_to_end
        self._reported: set[str] = set()

    def settled(self, name: str, answer: SettleResult) -> None:
        """Logs once per function that no live worker knows it."""
        if answer is SettleResult.WAITS:
            self._report(name, "its tasks wait for a worker that does")

    def failed(self, name: str) -> None:
        self._report(name, "its tasks fail, because this worker runs until all tasks are finished")

    async def fail_waiting(self) -> None:
        """Fails the tasks that wait for their function, if no live worker knows it."""
        for function in await self._worker.docket.ledger.tasks.unknown_functions():
            if not function.is_known:
                await self._fail(function.name)

    async def _fail(self, name: str) -> None:
        worker = self._worker
        ending = own_ending(not_registered(name), worker.name)
        event = ending_event(ExecutionState.FAILED, worker.name_json, worker.now_ms(), ending.error)
        while failed := await worker.docket.ledger.tasks.fail_unknown(name, ending, event):
            self.failed(name)
            TASKS_FAILED.add(failed, worker.labels())

    def _report(self, name: str, consequence: str) -> None:
        if name not in self._reported:
            self._reported.add(name)
            logger.warning(
                "Unknown task %r: no live worker knows it; %s. Register the function with a worker's docket, or give --tasks",
                name, consequence,
            )  # fmt: skip


async def default_fallback_task(*args: Any, **kwargs: Any) -> None:
    """Drops a task whose function the worker does not
    know, with a warning. The task ends COMPLETED.

    For `Worker(fallback_task=default_fallback_task)` and
    `--fallback-task docket.worker:default_fallback_task`. Without a fallback, such a task goes to a
    worker that knows its function, or waits for one.
    """
    execution = current_execution.get()
    logger.warning(
        "Unknown task %r received and dropped: register the function with the worker's docket, or give --tasks",
        execution.function_name,
        extra=execution.specific_labels(),
    )
