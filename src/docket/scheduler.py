"""Schedules executions: encodes them, sends them to the
ledger, and notes the result in the execution."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from docket.declaration import SettingsDeclaration
from docket.durability import enqueue_for, not_durable
from docket.errors import NotDurable, PayloadTooLarge, ServerUnreachable, ServerUnsuitable
from docket.execution import Disposition, Execution
from docket.execution.task_call import FRESH, SENT
from docket.instrumentation import TASKS_ADDED, TASKS_REPLACED, TASKS_SCHEDULED, TASKS_STRICKEN, is_measured
from docket.ledger import Batcher, EnqueueResult, Ledger, NewTask
from docket.ledger.payloads import LARGEST_CALL, Payload, call_payload
from docket.ledger.tasks import ENQUEUE_BATCH
from docket.model.bounds import check_key
from docket.model.task_keys import key_end
from docket.model.times import from_ms, to_ms
from docket.repeater import Repeater, StoreTries, error_for_caller

if TYPE_CHECKING:
    from docket.docket import Docket

logger: logging.Logger = logging.getLogger("docket.docket")


# How many times a large call is stored if the server deletes it before the task is scheduled.
TRIES = 3


class Scheduler:
    """Sends executions to the ledger. Concurrent calls
    share a request."""

    def __init__(self, docket: Docket, ledger: Ledger) -> None:
        self._docket = docket
        self._ledger = ledger
        self._enqueue_batch = enqueue_for(ledger, docket.durability, docket.durability_timeout)
        self._batcher: Batcher[NewTask, EnqueueResult] = Batcher(
            self._enqueue_batch, most=ENQUEUE_BATCH, weigh=weigh, in_flight=4, name=f"{docket.name} - enqueuing"
        )
        self._declaring = SettingsDeclaration(docket, ledger)
        self._repeater = Repeater(docket.add_patience.total_seconds(), ledger.ttl_ms, self._connect)
        self._labels_by_function: dict[str, dict[str, str]] = {}

    async def flush(self) -> None:
        await self._batcher.flush()
        await self._declaring.aclose()

    async def schedule(self, execution: Execution, replace: bool) -> None:
        task = self.new_task(execution, replace)
        if task is None:
            return
        if task.payload is not None:
            await self._store(task.payload)
        try:
            result = await (self._batcher.call(task) if task.payload is None else self._enqueue(task))
        except ServerUnreachable as error:
            result = await self.repeat(execution, task, error, replace)
        except NotDurable as error:
            raise self._truth(execution, task, error, replace) from None
        self.note(execution, result, replace)

    async def repeat(
        self, execution: Execution, task: NewTask, error: ServerUnreachable, replace: bool
    ) -> EnqueueResult:
        """Sends a call again after an error, where that is safe. Otherwise raises the error."""
        (result,) = await self._repeater.repeat(self._enqueue_each, [task], error)
        if isinstance(result, Exception):
            raise self._truth(execution, task, result, replace) from None
        return result

    def is_ready_for_threads(self) -> bool:
        """Whether a thread may prepare and note a call itself. The first call of a docket, calls
        that strikes may forbid, and calls that wait for a replica are for the event loop."""
        return self._declaring.begun and self._docket.strike_list.is_empty and self._docket.durability == "primary"

    async def _connect(self) -> None:
        await self._docket.server.connect(self._ledger.keys.root)

    async def _enqueue(self, task: NewTask) -> EnqueueResult:
        for _ in range(TRIES):
            result = await self._batcher.call(task)
            if task.payload is None or not result.payload_missing:
                return result
            await self._store(task.payload)
        raise ServerUnsuitable(
            f"{self._docket.server.shown_url}: the server deletes stored arguments at once; set its maxmemory-policy to noeviction"
        )

    async def _store(self, payload: Payload) -> None:
        """Stores a large call before the script that refers to it. A failed attempt is repeated,
        which is safe: a stored call is not a task yet."""
        tries = StoreTries(self._docket.add_patience.total_seconds())
        while True:
            try:
                await self._ledger.payloads.store(payload, patience=tries.patience)
                return
            except ServerUnreachable as error:
                if not await tries.another(self._ledger.payloads.connect):
                    raise error_for_caller(error, maybe_stored=False) from error

    async def _enqueue_each(self, tasks: Sequence[NewTask]) -> list[EnqueueResult | Exception]:
        """Uses the batcher, because many calls are repeated at once after an outage."""
        answers: list[EnqueueResult | Exception] = []
        for task in tasks:
            try:
                answers.append(await self._enqueue(task))
            except NotDurable as error:
                answers.append(error)
        return answers

    def _truth(self, execution: Execution, task: NewTask, error: Exception, replace: bool) -> Exception:
        """The error for the caller. A task that the primary has stored, and no replica has
        confirmed, is scheduled all the same."""
        if task.stored is None or not isinstance(error, (NotDurable, ServerUnreachable)):
            return error
        self.note(execution, task.stored, replace)
        # A record of a key that docket made up can only be of this task.
        execution.is_unconfirmed = task.made_up
        return not_durable(execution, error)

    def new_task(self, execution: Execution, replace: bool) -> NewTask | None:
        """The new task for the ledger, or None if a strike blocks it.
        Raises if the arguments cannot be stored."""
        docket = self._docket
        if not self._declaring.begun:
            self._declaring.begin()
        if not docket.strike_list.is_empty and docket.strike_list.is_stricken(execution):
            self._note_strike(execution)
            return None
        check_key(execution.key)
        call, name = execution.encode(), execution.function_name
        size, payload = len(call), None
        if size > docket.max_payload:
            raise PayloadTooLarge(
                f"the arguments of {name} take {size:,} bytes, more than the {docket.max_payload:,} allowed "
                "(Docket(max_payload=…)); store them elsewhere and pass the address"
            )
        if size > LARGEST_CALL:
            payload = call_payload(call)
            call = payload.reference
        due_ms = to_ms(execution.when)
        # The key is fresh only for the first request. A later request must look it up.
        key_use, end = execution.key_use, None
        if key_use is FRESH:
            execution.key_use, end = SENT, key_end(execution.key)
        # A task that is due by the caller's clock starts
        # at once, even if the server's clock is behind.
        is_due = due_ms <= docket.server.clock.now_ms()
        return NewTask(
            execution.key, name, call, due_ms, execution.attempt, replace, key_use is FRESH, is_due, payload,
            execution.is_unconfirmed and not replace, execution.seed, key_use is SENT, key_end=end,
        )  # fmt: skip

    def _note_strike(self, execution: Execution) -> None:
        execution.disposition = Disposition.STRUCK
        TASKS_STRICKEN.add(1, {**self._labels(execution.function_name), "docket.where": "docket"})
        logger.warning("🗙 %s is not scheduled", execution.call_repr())

    def note(self, execution: Execution, result: EnqueueResult, replace: bool) -> None:
        execution.state, execution.generation = result.state, result.generation
        if execution.is_unconfirmed:
            execution.is_unconfirmed = False
        if result.scheduled:
            execution.disposition = Disposition.SCHEDULED
        else:
            execution.disposition, execution.when = Disposition.ALREADY_SCHEDULED, from_ms(result.due_ms)
        if is_measured():
            self._count(execution, result, replace)

    def _count(self, execution: Execution, result: EnqueueResult, replace: bool) -> None:
        labels = self._labels(execution.function_name)
        if not replace:
            # A key that exists already counts, too: added − scheduled are the duplicates.
            TASKS_ADDED.add(1, labels)
        elif result.scheduled:
            TASKS_REPLACED.add(1, labels)
        if result.scheduled:
            TASKS_SCHEDULED.add(1, labels)

    def _labels(self, name: str) -> dict[str, str]:
        labels = self._labels_by_function.get(name)
        if labels is None:
            labels = self._labels_by_function[name] = {"docket.name": self._docket.name, "docket.task": name}
        return labels


def weigh(task: NewTask) -> int:
    """The approximate size in a script's arguments, in bytes."""
    return len(task.call) + len(task.key) + len(task.function_name) + 30


def mark_failed(execution: Execution, error: Exception) -> None:
    execution.disposition, execution.schedule_exception = Disposition.FAILED, error
