"""Schedules many executions: prepares the next batch while the server works on the ones before."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from docket.errors import ServerUnreachable
from docket.execution import Disposition, Execution, ExecutionState, TaskFunction
from docket.execution.arguments import shower
from docket.execution.task_call import FRESH, SENT
from docket.instrumentation import TASKS_ADDED, TASKS_SCHEDULED, is_measured
from docket.ledger import EnqueueResult, NewTask
from docket.ledger.batcher import BATCH_BYTES
from docket.ledger.payloads import LARGEST_CALL
from docket.ledger.tasks import ENQUEUE_BATCH
from docket.model.task_keys import key_end
from docket.model.times import to_ms
from docket.scheduler import Scheduler, mark_failed, weigh
from docket.storage.records import name_in_record

# A batch has at most eight large calls: the first one waits until the last one is stored.
LARGE_CALL_WEIGHT = BATCH_BYTES // 8
# Batches under way: the server has work while this process reads an answer and prepares a batch.
UNDER_WAY = 2
# About what a key adds to the size of a request.
_KEY_BYTES = 65


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


class BulkScheduler(Scheduler):
    """Adds `schedule_many`."""

    async def schedule_many(self, executions: Iterable[Execution], replace: bool, most: int | None = None) -> None:
        """Schedules each execution separately: an error affects only its own execution. A batch has
        at most `most` executions."""
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            for batch in self._batches(executions, replace, min(most or ENQUEUE_BATCH, ENQUEUE_BATCH)):
                while len(under_way) >= (1 if batch.has_own_keys else UNDER_WAY):
                    await under_way.popleft()
                sending = self._send(batch, replace)
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

    def _batches(self, executions: Iterable[Execution], replace: bool, most: int) -> Iterator[Batch]:
        add_new, batch = self._adder(replace), Batch()
        for execution in executions:
            if len(batch.executions) == most or batch.room <= 0:
                yield batch
                add_new, batch = self._adder(replace), Batch()
            if not batch.tasks and add_new(batch, execution):
                continue
            task = self._new_task_or_mark(execution, replace)
            if task is None:
                continue
            weight = weigh(task) if task.payload is None else LARGE_CALL_WEIGHT
            if batch.values or (batch.tasks and weight > batch.room):
                yield batch
                add_new, batch = self._adder(replace), Batch()
            batch.room -= weight
            batch.executions.append(execution)
            batch.tasks.append(task)
            batch.has_own_keys = batch.has_own_keys or not task.fresh
        if batch.executions:
            yield batch

    def _adder(self, replace: bool) -> Callable[[Batch, Execution], bool]:
        """A function that adds a usual call with a new key to a batch, at little cost. It returns
        False for any other call."""
        docket = self._docket
        if replace or self._enqueue_batch != self._ledger.tasks.enqueue or not docket.strike_list.is_empty:
            return _add_nothing
        if not self._declaring.begun:
            self._declaring.begin()
        now_ms, largest = docket.server.clock.now_ms(), min(LARGEST_CALL, docket.max_payload)
        last_function: TaskFunction | None = None
        last_name, last_context, size, seal = "", None, 0, docket.payloads.call_sealer("", None, None)

        def add(batch: Batch, execution: Execution) -> bool:
            nonlocal last_function, last_name, last_context, size, seal
            if execution.key_use is not FRESH or execution.attempt != 1 or type(execution) is not Execution:
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
                # `new_task` meets the same error and reports it.
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

    def _new_task_or_mark(self, execution: Execution, replace: bool) -> NewTask | None:
        try:
            return self.new_task(execution, replace)
        except Exception as error:
            mark_failed(execution, error)
            return None

    async def _send(self, batch: Batch, replace: bool) -> None:
        if batch.tasks:
            await self._send_tasks(list(zip(batch.executions, batch.tasks, strict=True)), replace)
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
        sent = [(execution, _new_task_of(execution, due_ms, end)) for execution, due_ms, end in calls]
        answers: Sequence[EnqueueResult | Exception]
        try:
            answers = await self._repeater.repeat(self._enqueue_batch, [task for _, task in sent], error)
        except Exception as trouble:
            answers = [trouble] * len(sent)
        self._note_answers(sent, answers, replace=False)

    async def _send_tasks(self, sent: Sequence[tuple[Execution, NewTask]], replace: bool) -> None:
        if any(task.payload is not None for _, task in sent):
            sent = [pair for pair in sent if await self._is_stored(*pair)]
        try:
            answers = await self._enqueue_many([task for _, task in sent])
        except Exception as error:
            answers = [error] * len(sent)
        self._note_answers(sent, answers, replace)

    async def _enqueue_many(self, tasks: Sequence[NewTask]) -> Sequence[EnqueueResult | Exception]:
        answers: list[EnqueueResult | Exception]
        try:
            answers = list(await self._enqueue_batch(tasks))
        except ServerUnreachable as error:
            answers = await self._repeater.repeat(self._enqueue_batch, tasks, error)
        for at, answer in enumerate(answers):
            if isinstance(answer, EnqueueResult) and answer.payload_missing:
                try:
                    answers[at] = await self._enqueue(tasks[at])
                except Exception as error:
                    answers[at] = error
        return answers

    async def _is_stored(self, execution: Execution, task: NewTask) -> bool:
        if task.payload is None:
            return True
        try:
            await self._store(task.payload)
        except Exception as error:
            mark_failed(execution, error)
            return False
        return True

    def _note_answers(
        self, sent: Sequence[tuple[Execution, NewTask]], answers: Sequence[EnqueueResult | Exception], replace: bool
    ) -> None:
        for (execution, task), answer in zip(sent, answers, strict=True):
            if isinstance(answer, Exception):
                mark_failed(execution, self._truth(execution, task, answer, replace))
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


def _add_nothing(batch: Batch, execution: Execution) -> bool:
    return False


def _new_task_of(execution: Execution, due_ms: float, end: bytes) -> NewTask:
    name = execution.function_name
    call = end[len(name_in_record(name)) :]
    return NewTask(execution.key, name, call, abs(due_ms), 1, False, True, due_ms <= 0)
