"""Schedules tasks. A call is *prepared*, which makes a sealed task of it, and the task is *sent*.

A prepared task is plain data: another thread or another process may send it. Tasks that are sent
one by one at the same time share a request. Of many calls, the next batch is prepared while the
server works on the ones before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from docket.declaration import SettingsDeclaration
from docket.durability import Repeater, StoreTries, error_for_caller, not_durable, send_for
from docket.errors import NotDurable, PayloadTooLarge, ServerUnreachable, ServerUnsuitable
from docket.execution import Disposition, Execution, ExecutionState, TaskFunction
from docket.execution.arguments import shower
from docket.execution.task_call import FRESH, SENT
from docket.instrumentation import TASKS_ADDED, TASKS_REPLACED, TASKS_SCHEDULED, TASKS_STRICKEN, is_measured
from docket.ledger import Batcher, EnqueueResult, Ledger, NewTask
from docket.ledger.payloads import LARGEST_CALL, Payload, call_payload
from docket.ledger.tasks import ENQUEUE_BATCH
from docket.model.task_keys import check_key, key_end
from docket.model.times import from_ms, to_ms
from docket.storage.records import name_in_record

from .ledger.calls import BATCH_BYTES

if TYPE_CHECKING:
    from docket.docket import Docket

logger: logging.Logger = logging.getLogger("docket.docket")


# How many times a large call is stored if the server deletes it before the task is scheduled.
TRIES = 3
# A batch has at most eight large calls: the first one waits until the last one is stored.
LARGE_CALL_WEIGHT = BATCH_BYTES // 8
# Batches under way: the server has work while this process reads an answer and prepares a batch.
UNDER_WAY = 2
# About what a key adds to the size of a request.
_KEY_BYTES = 65

# A prepared task, or why there is none. The error is raised, or noted, when the task is sent: a
# strike comes first.
Prepared = NewTask | Exception


class Batch:
    """Executions that share a request. `values` has the calls for the script of bulk scheduling;
    `tasks` has calls that need more care. A batch never has both."""

    __slots__ = ("executions", "has_own_keys", "room", "tasks", "values")

    def __init__(self) -> None:
        self.executions: list[Execution] = []
        # Four per call: the key, the due time, the end of the task record, the end of the key.
        self.values: list[Any] = []
        self.tasks: list[NewTask] = []
        self.room: int = BATCH_BYTES
        # Such batches are sent one after the other: of two calls with one key, the first counts.
        self.has_own_keys: bool = False

    def add(self, execution: Execution, task: NewTask) -> bool:
        """Adds a task, or returns False if it needs another batch."""
        weight = weigh(task) if task.payload is None else LARGE_CALL_WEIGHT
        if self.values or (self.tasks and weight > self.room):
            return False
        self.room -= weight
        self.executions.append(execution)
        self.tasks.append(task)
        self.has_own_keys = self.has_own_keys or not task.fresh
        return True


class Scheduler:
    """Prepares tasks and sends them to the ledger."""

    def __init__(self, docket: Docket, ledger: Ledger) -> None:
        self._docket = docket
        self._ledger = ledger
        self._send_batch = send_for(ledger, docket.durability, docket.durability_timeout)
        self._batcher: Batcher[NewTask, EnqueueResult] = Batcher(
            self._send_batch, most=ENQUEUE_BATCH, weigh=weigh, in_flight=4, name=f"{docket.name} - enqueuing"
        )
        self._declaring = SettingsDeclaration(docket, ledger)
        self._repeater = Repeater(docket.add_patience.total_seconds(), ledger.ttl_ms, self._connect)
        self._labels_by_function: dict[str, dict[str, str]] = {}

    async def flush(self) -> None:
        await self._batcher.flush()
        await self._declaring.aclose()

    # One call

    # twin of: send (caller_adds.py)
    async def schedule(self, execution: Execution, replace: bool, prepared: Prepared | None = None) -> None:
        """Schedules a call. `prepared`: its task, if it was prepared before, in another thread."""
        self._declare()
        if self._is_struck(execution):
            return
        task = self.prepare(execution, replace) if prepared is None else prepared
        if isinstance(task, Exception):
            raise task
        if task.payload is not None:
            await self._store(task.payload)
        try:
            result = await (self._batcher.call(task) if task.payload is None else self._enqueue(task))
        except ServerUnreachable as error:
            result = await self.repeat(execution, task, error)
        except NotDurable as error:
            raise self._truth(execution, task, error) from None
        self.note(execution, result, replace)

    # twin of: add (scheduler.py)
    def prepare(self, execution: Execution, replace: bool) -> NewTask:
        """The call as a sealed task, which can be sent later, by any process. Safe to call from any
        thread. Raises Unserializable or PayloadTooLarge if the arguments cannot be stored."""
        docket = self._docket
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
        options = execution._options  # pyright: ignore[reportPrivateUsage] - users do not read options
        # A task that is due by the caller's clock starts
        # at once, even if the server's clock is behind.
        is_due = due_ms <= docket.server.clock.now_ms()
        return NewTask(
            execution.key, name, call, due_ms, execution.attempt, replace, key_use is FRESH, is_due, payload,
            execution.is_unconfirmed and not replace, execution.seed, key_use is SENT, None, False, end, options,
        )  # fmt: skip

    async def send(self, tasks: Sequence[NewTask]) -> list[EnqueueResult | Exception]:
        """Sends prepared tasks, at most `ENQUEUE_BATCH`. Returns the result or the error of each: a
        task that cannot be stored does not keep the others from being scheduled."""
        self._declare()
        errors: dict[int, Exception] = {}
        for at, task in enumerate(tasks):
            if task.payload is not None:
                try:
                    await self._store(task.payload)
                except Exception as error:
                    errors[at] = error
        stored = tasks if not errors else [task for at, task in enumerate(tasks) if at not in errors]
        answers: Sequence[EnqueueResult | Exception]
        try:
            answers = await self._enqueue_many(stored) if stored else []
        except Exception as error:
            answers = [error] * len(stored)
        following = iter(answers)
        return [errors[at] if at in errors else next(following) for at in range(len(tasks))]

    async def repeat(self, execution: Execution, task: NewTask, error: ServerUnreachable) -> EnqueueResult:
        """Sends a task again after an error, where that is safe. Otherwise raises the error."""
        (result,) = await self._repeater.repeat(self._enqueue_each, [task], error)
        if isinstance(result, Exception):
            raise self._truth(execution, task, result) from None
        return result

    def is_ready_for_threads(self) -> bool:
        """Whether a thread may send and note a task itself. The first call of a docket, calls that
        strikes may forbid, and calls that wait for a replica are for the event loop."""
        return self._declaring.begun and self._docket.strike_list.is_empty and self._docket.durability == "primary"

    # Many calls

    async def schedule_many(
        self,
        executions: Iterable[Execution],
        replace: bool,
        most: int | None = None,
        prepared: Iterable[Prepared] | None = None,
    ) -> None:
        """Schedules each execution separately: an error affects only its own execution. A batch has
        at most `most` executions. `prepared`: their tasks, if they were prepared before."""
        self._declare()
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            for batch in self._batches(executions, replace, min(most or ENQUEUE_BATCH, ENQUEUE_BATCH), prepared):
                while len(under_way) >= (1 if batch.has_own_keys else UNDER_WAY):
                    await under_way.popleft()
                sending = self._schedule_batch(batch, replace)
                under_way.append(asyncio.create_task(sending, name=f"{self._docket.name} - sending a batch"))
                # The request leaves before the next batch is prepared.
                await asyncio.sleep(0)
                if batch.has_own_keys:
                    await under_way.popleft()
            while under_way:
                await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()

    def _batches(
        self, executions: Iterable[Execution], replace: bool, most: int, prepared: Iterable[Prepared] | None
    ) -> Iterator[Batch]:
        add_new, batch = self._adder(replace, prepared), Batch()
        following = iter(prepared or ())
        for execution in executions:
            if len(batch.executions) == most or batch.room <= 0:
                yield batch
                add_new, batch = self._adder(replace, prepared), Batch()
            if not batch.tasks and add_new(batch, execution):
                continue
            task = self._task_of(execution, replace, next(following, None))
            if task is not None and not batch.add(execution, task):
                yield batch
                add_new, batch = self._adder(replace, prepared), Batch()
                batch.add(execution, task)
        if batch.executions:
            yield batch

    def _adder(self, replace: bool, prepared: object) -> Callable[[Batch, Execution], bool]:
        """A function that adds a usual call with a new key to a batch, at little cost: `prepare`
        and `Batch.add` in one. It returns False for any other call."""
        docket = self._docket
        is_usual = not replace and prepared is None and self._send_batch == self._ledger.tasks.enqueue
        if not is_usual or not docket.strike_list.is_empty:
            return _add_nothing
        now_ms, largest = docket.server.clock.now_ms(), min(LARGEST_CALL, docket.max_payload)
        last_function: TaskFunction | None = None
        last_name, last_context, size, seal = "", None, 0, docket.payloads.call_sealer("", None, None)

        # twin of: prepare (scheduler.py)
        def add(batch: Batch, execution: Execution) -> bool:
            nonlocal last_function, last_name, last_context, size, seal
            if execution.key_use is not FRESH or execution.attempt != 1:
                return False
            if execution._options is not None:  # pyright: ignore[reportPrivateUsage] - users do not read options
                return False
            function, name, context = execution.function, execution.function_name, execution.trace_context
            key = execution.key
            try:
                if function is not last_function or name != last_name or context is not last_context:
                    beginning = name_in_record(name)
                    seal = docket.payloads.call_sealer(name, function, context, beginning, shower(function))
                    size, last_function, last_name, last_context = largest + len(beginning), function, name, context
                end = seal(key, execution.args, execution.kwargs)
            except Exception:
                # `prepare` meets the same error and reports it.
                return False
            if len(end) > size:
                return False
            execution.key_use = SENT
            due_ms = to_ms(execution.when)
            batch.executions.append(execution)
            batch.values += (key.encode(), -due_ms if due_ms <= now_ms else due_ms, end, key_end(key))
            batch.room -= len(end) + _KEY_BYTES
            return True

        return add

    def _task_of(self, execution: Execution, replace: bool, prepared: Prepared | None) -> NewTask | None:
        """The task of a call, or None if a strike blocks it or an error marks it."""
        if self._is_struck(execution):
            return None
        try:
            task = self.prepare(execution, replace) if prepared is None else prepared
        except Exception as error:
            task = error
        if isinstance(task, Exception):
            mark_failed(execution, task)
            return None
        return task

    async def _schedule_batch(self, batch: Batch, replace: bool) -> None:
        if batch.tasks:
            self._note_answers(batch.executions, batch.tasks, await self.send(batch.tasks), replace)
            return
        try:
            now_ms, stored_before = await self._ledger.tasks.enqueue_new(batch.values)
        except ServerUnreachable as error:
            await self._send_again(batch, error)
        except Exception as error:
            for execution in batch.executions:
                mark_failed(execution, error)
        else:
            self._note_new(batch, now_ms, stored_before)

    async def _send_again(self, batch: Batch, error: ServerUnreachable) -> None:
        calls = zip(batch.executions, batch.values[1::4], batch.values[2::4], strict=True)
        tasks = [_task_of_values(execution, due_ms, end) for execution, due_ms, end in calls]
        answers: Sequence[EnqueueResult | Exception]
        try:
            answers = await self._repeater.repeat(self._send_batch, tasks, error)
        except Exception as trouble:
            answers = [trouble] * len(tasks)
        self._note_answers(batch.executions, tasks, answers, replace=False)

    # Requests

    def _declare(self) -> None:
        if not self._declaring.begun:
            self._declaring.begin()

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

    async def _enqueue_each(self, tasks: Sequence[NewTask]) -> list[EnqueueResult | Exception]:
        """Uses the batcher, because many calls are repeated at once after an outage."""
        answers: list[EnqueueResult | Exception] = []
        for task in tasks:
            try:
                answers.append(await self._enqueue(task))
            except NotDurable as error:
                answers.append(error)
        return answers

    async def _enqueue_many(self, tasks: Sequence[NewTask]) -> Sequence[EnqueueResult | Exception]:
        answers: list[EnqueueResult | Exception]
        try:
            answers = list(await self._send_batch(tasks))
        except ServerUnreachable as error:
            answers = await self._repeater.repeat(self._send_batch, tasks, error)
        for at, answer in enumerate(answers):
            if isinstance(answer, EnqueueResult) and answer.payload_missing:
                try:
                    answers[at] = await self._enqueue(tasks[at])
                except Exception as error:
                    answers[at] = error
        return answers

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

    # Results

    def _is_struck(self, execution: Execution) -> bool:
        """Whether a strike blocks the call. Then the execution and the log say so."""
        strikes = self._docket.strike_list
        if strikes.is_empty or not strikes.is_stricken(execution):
            return False
        execution.disposition = Disposition.STRUCK
        TASKS_STRICKEN.add(1, {**self._labels(execution.function_name), "docket.where": "docket"})
        logger.warning("🗙 %s is not scheduled", execution.call_repr())
        return True

    def _truth(self, execution: Execution, task: NewTask, error: Exception) -> Exception:
        """The error for the caller. A task that the primary has stored, and no replica has
        confirmed, is scheduled all the same."""
        if task.stored is None or not isinstance(error, (NotDurable, ServerUnreachable)):
            return error
        self.note(execution, task.stored, task.replace)
        # A record of a key that docket generated can only be of this task.
        execution.is_unconfirmed = task.generated
        return not_durable(execution, error)

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

    def _note_answers(
        self,
        executions: Sequence[Execution],
        tasks: Sequence[NewTask],
        answers: Sequence[EnqueueResult | Exception],
        replace: bool,
    ) -> None:
        for execution, task, answer in zip(executions, tasks, answers, strict=True):
            if isinstance(answer, Exception):
                mark_failed(execution, self._truth(execution, task, answer))
            else:
                self.note(execution, answer, replace)

    def _note_new(self, batch: Batch, now_ms: float, stored_before: Collection[int]) -> None:
        scheduled, queued = Disposition.SCHEDULED, ExecutionState.QUEUED
        for execution, due_ms in zip(batch.executions, batch.values[1::4], strict=True):
            execution.generation, execution.disposition = 1, scheduled
            if due_ms <= now_ms:
                execution.state = queued
        for at in stored_before:
            batch.executions[at].disposition = Disposition.ALREADY_SCHEDULED
        if is_measured():
            for name, count in Counter(execution.function_name for execution in batch.executions).items():
                TASKS_ADDED.add(count, self._labels(name))
            names = (execution.function_name for execution in batch.executions if execution.disposition is scheduled)
            for name, count in Counter(names).items():
                TASKS_SCHEDULED.add(count, self._labels(name))

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


def _add_nothing(batch: Batch, execution: Execution) -> bool:
    return False


def _task_of_values(execution: Execution, due_ms: float, end: bytes) -> NewTask:
    name = execution.function_name
    call = end[len(name_in_record(name)) :]
    return NewTask(execution.key, name, call, abs(due_ms), 1, False, True, due_ms <= 0)
