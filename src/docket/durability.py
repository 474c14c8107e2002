"""Safe sending: repeats requests to schedule tasks where a repeat cannot create a second task, and
waits until a replica has the tasks (docs/design/replicas.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Literal

from docket._aio import Backoff
from docket.errors import NotDurable, ServerUnreachable
from docket.execution import Execution
from docket.ledger import EnqueueResult, Ledger, NewTask
from docket.model.times import duration_ms

from .storage.client.faults import ServerGone, ServerSilent
from .storage.client.urls import ServerKind

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.4
# Nothing is sent with less time than this for the answer, or than a quarter of the patience:
# without an answer nobody knows whether the task is stored.
_ANSWER_SECONDS = 0.2
# Finished records must outlast the repeats by this time,
# because a request that was given up may still arrive.
_SPARE_SECONDS = 5.0


Connect = Callable[[], Awaitable[None]]
Send = Callable[[Sequence[NewTask]], Awaitable[Sequence[EnqueueResult | Exception]]]


class Repeater:
    """Repeats for at most `patience` seconds, as far as that is safe.

    A repeat is safe if nothing was sent, or if the server refused for a transient reason. After a
    lost answer it is safe only for a call with a made-up key: if the key has a task or a finished
    record, the script knows that it is this call. This needs a finished record that outlasts the
    repeats, so with a shorter `ttl_ms` docket does not repeat.
    """

    def __init__(self, patience: float, ttl_ms: int, connect: Connect) -> None:
        self._patience = patience
        self._answer_seconds = min(_ANSWER_SECONDS, patience / 4)
        self._connect = connect
        self._records_last = ttl_ms / 1000 >= patience + _SPARE_SECONDS

    async def repeat(
        self, send: Send, tasks: Sequence[NewTask], error: ServerUnreachable
    ) -> list[EnqueueResult | Exception]:
        """Returns the result or the error of each call."""
        answers: dict[int, EnqueueResult | Exception] = {}
        left = list(range(len(tasks)))
        generated = [task.fresh for task in tasks]
        deadline = time.monotonic() + self._patience
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while left:
            for at in left if error.maybe_stored else ():
                # Without such a doubt a fresh key stays fresh. The script finds out whether the
                # caller has sent the same call again (docs/design/state-machine.md).
                tasks[at].unanswered, tasks[at].fresh = True, False
            now = time.monotonic()
            until = {at: self._until(tasks[at], generated[at], deadline) for at in left}
            answers |= {at: error_for_caller(error, tasks[at].unanswered) for at in left if until[at] <= now}
            left = [at for at in left if at not in answers]
            if not left:
                break
            last = min(until[at] for at in left)
            await asyncio.sleep(min(backoff.next_pause(), last - now))
            try:
                results = await self._attempt(send, [tasks[at] for at in left], last, error)
            except ServerUnreachable as problem:
                error = problem
            except Exception as problem:
                # The server refuses this request for good. An earlier
                # attempt whose answer was lost may still have been stored.
                lost = error_for_caller(ServerGone(str(problem)), maybe_stored=True)
                answers |= {at: lost if tasks[at].unanswered else problem for at in left}
                break
            else:
                answers |= dict(zip(left, results, strict=True))
                break
        return [answers[at] for at in range(len(tasks))]

    async def _attempt(
        self, send: Send, tasks: Sequence[NewTask], last: float, before: ServerUnreachable
    ) -> Sequence[EnqueueResult | Exception]:
        """Connects first: an attempt that ends before there is a connection has stored nothing.
        Fails as the attempt before did if there is no time for an answer."""
        seconds = max(last - time.monotonic(), _FIRST_PAUSE)
        may_be_sent = False
        try:
            async with asyncio.timeout(seconds):
                await self._connect()
                if last - time.monotonic() < self._answer_seconds:
                    raise before
                may_be_sent = True
                return await send(tasks)
        except TimeoutError:
            error = ServerSilent(f"no answer within {seconds:.1f} s")
            error.maybe_stored = may_be_sent
            raise error from None

    def _until(self, task: NewTask, generated: bool, deadline: float) -> float:
        """The time until which the call may be sent again."""
        is_safe = not task.unanswered or (generated and not task.replace and self._records_last)
        return deadline if is_safe else 0.0


class StoreTries:
    """Attempts to store a large value. No attempt begins later than `seconds` after the first
    failure. Each may take twice as long as the one before, since the link may be slow."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.patience: float = 1.0

    async def another(self, connect: Connect) -> bool:
        """Waits before another attempt. Returns False if it is too late for
        one, or if the server cannot be reached in time."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now >= self._until:
            return False
        await asyncio.sleep(min(self._backoff.next_pause(), self._until - now))
        self.patience *= 2
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._until - time.monotonic()):
                await connect()
        except (ServerSilent, TimeoutError):
            return False
        except ServerUnreachable:
            # The server refused the connection. It may be back for the next attempt.
            return True
        return True


def error_for_caller(error: ServerUnreachable, maybe_stored: bool) -> ServerUnreachable:
    """A copy of the error that says whether this caller's task may be stored."""
    truth = "its answer was lost, so the task may be stored" if maybe_stored else "nothing was stored"
    copied = type(error)(f"{error} ({truth})")
    copied.maybe_stored = maybe_stored
    copied.__cause__ = error
    return copied


Durability = Literal["primary", "replica"]
DURABILITIES = ("primary", "replica")


def check_durability(durability: str) -> None:
    """Raises ValueError if the setting cannot be used."""
    if durability not in DURABILITIES:
        raise ValueError(f"Docket(durability={durability!r}): use one of {', '.join(map(repr, DURABILITIES))}")


def send_for(ledger: Ledger, durability: Durability, timeout: timedelta) -> Send:
    """The function that schedules a batch. The data of
    `memory://` ends with its process, so it needs no replica."""
    if durability == "primary" or ledger.server.address.kind is ServerKind.MEMORY:
        return ledger.tasks.enqueue
    return ReplicaWait(ledger, max(duration_ms(timeout), 1)).enqueue


class ReplicaWait:
    """Schedules batches and waits until a replica has them."""

    def __init__(self, ledger: Ledger, wait_ms: int) -> None:
        self._ledger = ledger
        self._wait_ms = wait_ms

    async def enqueue(self, tasks: Sequence[NewTask]) -> Sequence[EnqueueResult | Exception]:
        """The result of each task, or NotDurable if no replica has confirmed it in time. Raises
        ServerUnreachable if an answer was lost."""
        for task in tasks:
            # A key of the caller's own is not sent again after a lost answer.
            task.generated = task.generated or task.fresh or task.unanswered
        results, replicas = await self._ledger.tasks.enqueue_and_wait(tasks, self._wait_ms)
        if isinstance(replicas, int) and replicas > 0:
            return results
        for task, result in zip(tasks, results, strict=True):
            task.stored = None if result.payload_missing else result
        if isinstance(replicas, ServerUnreachable):
            # Only the answer of the replicas is missing. The connection is gone, and perhaps the
            # primary with its last writes: a repeat finds out.
            replicas.maybe_stored = True
            raise replicas
        reason = f"no replica has confirmed it within {self._wait_ms} ms" if replicas == 0 else str(replicas)
        return [
            result if task.stored is None else NotDurable(reason) for task, result in zip(tasks, results, strict=True)
        ]


def not_durable(execution: Execution, error: Exception) -> NotDurable:
    """The error for one caller whose task is stored and not confirmed."""
    told = NotDurable(
        f"{execution.function_name} is stored under the key {execution.key!r} and may run, but a fail-over may lose it: "
        f"{error}"
    )
    told.key, told.execution, told.__cause__ = execution.key, execution, error
    return told
