"""Where a task has to be stored before `add` returns (docs/design/replicas.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Literal

from docket.errors import NotDurable, ServerUnreachable
from docket.execution import Execution
from docket.ledger import EnqueueResult, Ledger, NewTask
from docket.model.times import duration_ms
from docket.storage.urls import ServerKind

Durability = Literal["primary", "replica"]
DURABILITIES = ("primary", "replica")

Enqueue = Callable[[Sequence[NewTask]], Awaitable[Sequence[EnqueueResult | Exception]]]


def check_durability(durability: str) -> None:
    """Raises ValueError if the setting cannot be used."""
    if durability not in DURABILITIES:
        raise ValueError(f"Docket(durability={durability!r}): use one of {', '.join(map(repr, DURABILITIES))}")


def enqueue_for(ledger: Ledger, durability: Durability, timeout: timedelta) -> Enqueue:
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
            task.made_up = task.made_up or task.fresh or task.unanswered
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
