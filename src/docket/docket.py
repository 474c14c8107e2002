"""The docket: it schedules tasks, finds them again and changes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

from docket._compat import PydocketKeys
from docket.call_builders import CallBuilders
from docket.call_stream import stream_calls
from docket.chunks import check_chunk_size, checked_calls
from docket.dependencies import argument_check
from docket.execution import Execution, ProgressEvent, StateEvent, TaskCall, TaskFunction
from docket.execution.execution import new_execution
from docket.execution.waiting import watch
from docket.inspection.executions import find_execution
from docket.inspection.snapshot import DocketSnapshot, RunningExecution, WorkerInfo
from docket.instrumentation import TASKS_CANCELLED, inject_context, is_tracing
from docket.ledger import ProgressChange, Unwritten
from docket.ledger.audit import note_cancel
from docket.model.loggers import protect_own_loggers
from docket.operations import DocketOperations
from docket.pending_call import PendingCall, ScheduledBy, check_when_and_key
from docket.registry import TaskCollection
from docket.spans import batch_span, request_span, task_span

P = ParamSpec("P")
R = TypeVar("R")

protect_own_loggers()

__all__ = ["Docket", "DocketSnapshot", "RunningExecution", "TaskCollection", "WorkerInfo"]


class Docket(DocketOperations, PydocketKeys):
    """Schedules tasks and finds them again. An async context manager.

    `url` names the server (redis://, valkey://, redis+cluster://, redis+sentinel://, memory://name,
    embedded:///folder …). A docket can be entered while its server is unreachable: until the server
    answers, calls raise ServerUnreachable, which is a RedisError of redis-py, and workers wait.
    Entering raises UnknownScheme if docket does not know the scheme of the URL, and
    ServerUnsuitable if the server refuses docket (a wrong password) or is too old.

    `execution_ttl` is how long docket keeps the records of finished tasks; with 0 it keeps none.
    `max_payload` limits the bytes of the arguments, and of the result, of one task. `add_patience`
    is how long `add` and the other scheduling calls repeat a request that failed, where a repeat is
    safe; 0 turns repeats off. With `durability="replica"` these calls return when a replica has the
    task, too, and raise NotDurable if none has confirmed it within `durability_timeout`. docket
    buries a task whose workers died `max_losses` times, if it was the only run of its worker the
    last time. With `pickled_strikes` the value of a strike may have any type, and whoever writes to
    the server can run code in this process (docs/operators.md).

    `codec` is how arguments and results are stored, `"pickle"` or `"json"`; `exceptions` are the
    types that `"json"` raises again. With `signing`, a `Keyring` or a file of keys, this docket
    signs what it stores and refuses what is not signed; `encrypt` encrypts it, too. `accept` names
    what it reads besides what it writes: codecs, and `"unsigned"`.
    """

    # Names

    @property
    def tasks(self) -> dict[str, TaskFunction]:
        """The registered functions by name, the built-in tasks included."""
        return self.registry.tasks

    def now(self) -> datetime:
        """The time of the docket, with its time zone. Tests can set it."""
        return self.server.clock.now()

    # Registering

    def register(self, function: TaskFunction, names: Iterable[str] | None = None) -> None:
        """Makes a function known under its name, or under the given ones.

        Raises ValueError if its dependencies contradict each other; warns if another function has
        the name.
        """
        self.registry.register(function, names)

    def register_collection(self, collection_path: str, *, unique: bool = False) -> None:
        """Registers every function of `module:collection`.

        With `unique`, which `docket worker --tasks` sets, two functions of one name raise
        ValueError instead of a warning.
        """
        self.registry.register_collection(collection_path, unique=unique)

    # Scheduling

    @overload
    def add(
        self, function: Callable[P, R], when: datetime | None = None, key: str | None = None
    ) -> ScheduledBy[P, R]: ...
    @overload
    def add(
        self, function: str, when: datetime | None = None, key: str | None = None
    ) -> Callable[..., Coroutine[Any, Any, Execution]]: ...
    def add(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
    ) -> Callable[..., Coroutine[Any, Any, Execution]]:
        """Schedules a call: `await docket.add(function, when, key)(*args, **kwargs)`.

        If a task of the key waits or runs, it stays as it is. Raises TaskNotRegistered (a KeyError)
        for an unknown name, TypeError for arguments that the function does not take, Unserializable
        or PayloadTooLarge for arguments that cannot be stored, ServerFull, or ServerUnreachable. In
        each case nothing was stored, unless the ServerUnreachable says `maybe_stored`: then the
        answer was lost.

        docket first repeats a failed request for up to `add_patience`, where a repeat cannot make a
        second task: if nothing was sent, and after a lost answer if docket generated the key and
        keeps the records of finished tasks (`execution_ttl`).
        """
        return self._pending_call(function, when, key, replace=False)

    @overload
    def replace(self, function: Callable[P, R], when: datetime, key: str) -> ScheduledBy[P, R]: ...
    @overload
    def replace(self, function: str, when: datetime, key: str) -> Callable[..., Coroutine[Any, Any, Execution]]: ...
    def replace(
        self, function: TaskFunction | str, when: datetime, key: str
    ) -> Callable[..., Coroutine[Any, Any, Execution]]:
        """Schedules a call in place of the waiting task of that key. If the key has a run now, that
        run no longer counts.

        Raises the same errors as `add`. After a lost answer docket does not repeat the request.
        """
        return self._pending_call(function, when, key, replace=True)

    @overload
    def call(
        self, function: Callable[P, Any], when: datetime | None = None, key: str | None = None
    ) -> Callable[P, TaskCall]: ...
    @overload
    def call(self, function: str, when: datetime | None = None, key: str | None = None) -> Callable[..., TaskCall]: ...
    def call(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
    ) -> Callable[..., TaskCall]:
        """A call to schedule later, with `add_many` or `replace_many`. If it is sent again while
        its task waits or runs, nothing changes."""
        return self._call_builders.get(function, when, key)

    @cached_property
    def _call_builders(self) -> CallBuilders:
        return CallBuilders(self.registry, self.now)

    async def add_many(self, calls: Iterable[TaskCall], chunk_size: int | None = 1000) -> list[Execution]:
        """Schedules many calls, in chunks. Each call succeeds or fails on its own: an error marks
        only its execution (`Disposition.FAILED`, `schedule_exception`)."""
        return await self._schedule_many(calls, chunk_size, replace=False)

    async def replace_many(self, calls: Iterable[TaskCall], chunk_size: int | None = 1000) -> list[Execution]:
        """The same as `add_many`, but replaces the waiting tasks of the keys. If several calls have
        the same key, the last one counts."""
        return await self._schedule_many(calls, chunk_size, replace=True)

    def add_stream(
        self, calls: Iterable[TaskCall] | AsyncIterable[TaskCall], chunk_size: int = 1000
    ) -> AsyncGenerator[Execution]:
        """Schedules any number of calls in constant memory: `async for execution in
        docket.add_stream(calls)`. Yields the execution of each call, in order, when it is
        scheduled or has failed.

        docket reads a chunk of calls, and reads the next one while the server stores it. If `calls`
        raises, the chunks before are scheduled, and the error is raised after their executions.
        """
        check_chunk_size(chunk_size)
        return stream_calls(self, calls, chunk_size)

    async def schedule(self, execution: Execution, *, replace: bool = False) -> None:
        """Schedules an execution with its present call, key and time."""
        if is_tracing():
            with task_span(self, "schedule", execution):
                execution.trace_context = execution.trace_context or inject_context()
                await self.scheduler.schedule(execution, replace)
        else:
            await self.scheduler.schedule(execution, replace)

    def _pending_call(
        self, function: TaskFunction | str, when: datetime | None, key: str | None, *, replace: bool
    ) -> PendingCall:
        found, name = self.registry.find(function)
        check_when_and_key(when, key, name)
        return PendingCall(self, found, name, when, key, replace, argument_check(found))

    async def _schedule_many(
        self, calls: Iterable[TaskCall], chunk_size: int | None, *, replace: bool
    ) -> list[Execution]:
        check_chunk_size(chunk_size)
        executions: list[Execution] = []
        with batch_span(self, "replace_many" if replace else "add_many", executions):
            # All executions are made before the first is sent: an iterator that raises leaves
            # nothing behind. Calls are not kept: Python's garbage collector would visit them again
            # and again.
            trace_context = inject_context()
            for call in checked_calls(calls):
                execution = new_execution(
                    self, call.function, call.args, call.kwargs, call.key, call.when, call.function_name, trace_context
                )
                if call.seed:
                    execution.seed = True
                execution.key_use = call.spend_key()
                executions.append(execution)
            await self.scheduler.schedule_many(executions, replace, chunk_size)
        return executions

    # Unfinished and finished tasks

    async def cancel(self, key: str) -> None:
        """Removes a waiting task at once. If the task runs, asks its worker to cancel the run. An
        unknown key is not an error."""
        with request_span(self, "cancel", {"docket.key": key}):
            # The worker counts a cancelled run when it has ended.
            became = await self.ledger.cancel(key)
            if became == 1:
                TASKS_CANCELLED.add(1, self.labels())
        await note_cancel(self.ledger, key, became)

    async def get_execution(self, key: str) -> Execution[Any] | None:
        """The task of that key, finished or not, or None. Its function need not be registered
        here."""
        return await find_execution(self, key)

    # Queries

    def watch(self, key: str, ready: asyncio.Event | None = None) -> AsyncGenerator[StateEvent | ProgressEvent]:
        """The present state and progress of a task, then every event."""
        return watch(self, key, ready)

    async def write_progress(self, change: ProgressChange) -> bytes | Unwritten:
        """The progress of the task after the change, as JSON, or why it was not changed."""
        return await self._progress_batcher.submit(change)
