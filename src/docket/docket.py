"""The docket: where producers schedule work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from docket._compat import PydocketKeys
from docket.attached import AttachedWorkers
from docket.dependencies import argument_check
from docket.errors import NotOpen
from docket.execution import Execution, ProgressEvent, StateEvent, TaskCall, TaskFunction
from docket.execution.execution import new_execution
from docket.execution.manual_runs import ManualRuns
from docket.execution.waiting import watch
from docket.inspection.executions import find_execution
from docket.inspection.snapshot import DocketSnapshot, RunningExecution, WorkerInfo, read_workers, take_snapshot
from docket.instrumentation import (
    TASKS_CANCELLED,
    inject_context,
    is_tracing,
)
from docket.ledger import Batcher, Ledger, ProgressChange, Unwritten
from docket.ledger.foreign import warn_of_foreign
from docket.ledger.tasks import BATCH
from docket.model.losses import MAX_LOSSES, check_max_losses
from docket.model.task_keys import new_key
from docket.model.times import check_durations, duration_ms
from docket.pending_call import PendingCall, check_when_and_key
from docket.registry import Registry, TaskCollection, name_of
from docket.result_store import ResultStore
from docket.scheduler import Scheduler
from docket.spans import batch_span, request_span, task_span
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Subscriptions
from docket.storage.urls import Kind, parse
from docket.strikelist import LiteralOperator, Operator, Restore, Strike, StrikeInstruction, StrikeList
from docket.tasks import standard_tasks

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.credentials import CredentialProvider

P = ParamSpec("P")
R = TypeVar("R")

# Larger arguments belong in a store of their own, with the task carrying the address.
MAX_PAYLOAD = 8 * 1024 * 1024

Batch = int | None

__all__ = ["Docket", "DocketSnapshot", "RunningExecution", "TaskCollection", "WorkerInfo"]


class Docket(PydocketKeys):
    """Schedules tasks and finds them again. An async context manager.

    `url` names the server (redis://, valkey://, redis+cluster://, redis+sentinel://, memory://name,
    embedded:///folder …). It can be entered while the server is away: calls raise
    ServerUnreachable, which is a RedisError of redis-py, until the server is there, and workers
    wait for it. Entering raises UnknownScheme for a URL of no known kind, ServerUnsuitable if the
    server refuses us (a wrong password) or is too old. `execution_ttl` is how long finished tasks
    are remembered; with 0 nothing outlives the task. `max_payload` is how many bytes the arguments
    or the result of one task may have. `add_patience` is how long `add` and its like repeat a call
    that could not be written down, where a repeat is safe; 0 turns that off. A task that lost its
    worker `max_losses` times, the last time as its only run, is buried.
    """

    def __init__(
        self,
        name: str = "docket",
        url: str = "redis://localhost:6379/0",
        heartbeat_interval: timedelta = timedelta(seconds=2),
        missed_heartbeats: int = 5,
        execution_ttl: timedelta = timedelta(minutes=15),
        result_storage: Any = None,
        enable_internal_instrumentation: bool = False,
        credential_provider: CredentialProvider | None = None,
        *,
        max_payload: int = MAX_PAYLOAD,
        add_patience: timedelta = timedelta(seconds=2),
        max_losses: int = MAX_LOSSES,
    ) -> None:
        check_durations(
            "Docket", heartbeat_interval=heartbeat_interval, execution_ttl=execution_ttl, add_patience=add_patience
        )
        if heartbeat_interval <= timedelta(0) or missed_heartbeats < 1:
            raise ValueError("heartbeat_interval must be positive and missed_heartbeats at least 1")
        if add_patience < timedelta(0):
            raise ValueError(f"Docket(add_patience={add_patience}): it cannot be negative; 0 turns repeating off")
        self.name = name
        self.url = url
        self.heartbeat_interval = heartbeat_interval
        self.missed_heartbeats = missed_heartbeats
        self.execution_ttl = execution_ttl
        self.given_result_storage = result_storage
        self._result_store: Any = None
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.credential_provider = credential_provider
        self.max_payload = max_payload
        self.add_patience = add_patience
        self.max_losses: int = check_max_losses("Docket(max_losses=…)", max_losses)
        self.strike_list: StrikeList = StrikeList(url, name, enable_internal_instrumentation, credential_provider)
        self.registry: Registry = Registry()
        for function in standard_tasks:
            self.registry.register(function)
        self.server: Server = Server(url, credential_provider)
        self.keys: Keys = self._name_keys()
        self.attached: AttachedWorkers = AttachedWorkers()
        self._ledger: Ledger | None = None
        self._subscriptions: Subscriptions | None = None
        self._manual_runs: ManualRuns | None = None
        self._stack: AsyncExitStack | None = None
        self._closing: asyncio.Task[None] | None = None
        self._scheduling: Scheduler | None = None
        self._progressing: Batcher[ProgressChange, bytes | Unwritten]

    def _name_keys(self) -> Keys:
        cluster = parse(self.url).kind is Kind.CLUSTER
        if cluster and (not self.name or self.name.startswith("}")):
            raise ValueError(f"docket name {self.name!r}: on a cluster it must not be empty or begin with a brace")
        return Keys(self.name, database=self.server.database, cluster=cluster)

    # Life

    async def __aenter__(self) -> Self:
        assert self._stack is None, "this docket is already open"
        self._closing = None
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            self.keys = self._name_keys()
            self._ledger = Ledger(self.server, self.keys, max(duration_ms(self.execution_ttl), 0), self.max_losses)
            self._subscriptions = Subscriptions(self.server, self.name)
            stack.push_async_callback(self._subscriptions.aclose)
            stack.push_async_callback(self.strike_list.close)
            await self.strike_list.follow(self.server, self._subscriptions, self.keys)
            await warn_of_foreign(self._ledger, self.name)
            self._scheduling = Scheduler(self, self._ledger)
            self._progressing = Batcher(
                self._ledger.progress,
                most=BATCH,
                weigh=lambda change: change.weight,
                in_flight=2,
                name=f"{self.name} - progress",
            )
            stack.push_async_callback(self._scheduling.drain)
            stack.push_async_callback(self._progressing.drain)
            self._manual_runs = ManualRuns(self._ledger, self._manual_lease_ms(), self.name)
            stack.push_async_callback(self._manual_runs.aclose)
            self.attached.open()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Closes the connections. Workers that still run
        on this docket hand back what they run first."""
        if self._closing is not None:
            await asyncio.wait([self._closing])
        elif self._stack is not None and self.attached.is_inside():
            # A task body closes its own docket, which cannot wait for that body to end.
            self._closing = asyncio.create_task(self._end_and_close(), name=f"{self.name} - closing")
        elif self._stack is not None:
            await self._end_and_close()

    async def _end_and_close(self) -> None:
        try:
            await self.attached.end_all()
        finally:
            await self._close()

    async def _close(self) -> None:
        stack, self._stack = self._stack, None
        self._result_store = None
        if stack is not None:
            await stack.aclose()

    @property
    def ledger(self) -> Ledger:
        if self._stack is None or self._ledger is None:
            raise _not_open()
        return self._ledger

    @property
    def subscriptions(self) -> Subscriptions:
        if self._stack is None or self._subscriptions is None:
            raise _not_open()
        return self._subscriptions

    @property
    def manual_runs(self) -> ManualRuns:
        if self._stack is None or self._manual_runs is None:
            raise _not_open()
        return self._manual_runs

    def _manual_lease_ms(self) -> int:
        return max(duration_ms(self.heartbeat_interval * self.missed_heartbeats), 1)

    @property
    def scheduler(self) -> Scheduler:
        if self._stack is None or self._scheduling is None:
            raise _not_open()
        return self._scheduling

    @asynccontextmanager
    async def redis(self) -> AsyncGenerator[Redis]:
        """A redis-py client (bytes in, bytes out) on the docket's server."""
        if self._stack is None:
            raise _not_open()
        yield self.server.client

    @property
    def result_storage(self) -> Any:
        """Where results are read by `execution.result_key`, in the collection `results_collection`.

        The store that was given; else, while the docket is
        open, one that shows the results that records keep.
        """
        if self.given_result_storage is not None or self._stack is None:
            return self.given_result_storage
        if self._result_store is None:
            self._result_store = ResultStore(self)
        return self._result_store

    # Names

    @property
    def tasks(self) -> dict[str, TaskFunction]:
        return self.registry.tasks

    def labels(self) -> dict[str, str]:
        return {"docket.name": self.name}

    def now(self) -> datetime:
        return self.server.clock.now()

    # Registering

    def register(self, function: TaskFunction, names: Iterable[str] | None = None) -> None:
        """Makes a function known under its name, or under the given ones.

        Raises ValueError if its dependencies contradict
        each other; warns if another function has the name.
        """
        self.registry.register(function, names)

    def register_collection(self, collection_path: str, *, unique: bool = False) -> None:
        """Registers every function of `module:collection`.

        If names are to be `unique`, as those that `docket worker --tasks` loads, two functions of
        one name are a ValueError instead of a warning.
        """
        self.registry.register_collection(collection_path, unique=unique)

    # Scheduler

    @overload
    def add(
        self, function: Callable[P, Awaitable[R]], when: datetime | None = None, key: str | None = None
    ) -> Callable[P, Coroutine[Any, Any, Execution[R]]]: ...
    @overload
    def add(
        self, function: str, when: datetime | None = None, key: str | None = None
    ) -> Callable[..., Coroutine[Any, Any, Execution]]: ...
    def add(
        self,
        function: Callable[..., Awaitable[Any]] | str,
        when: datetime | None = None,
        key: str | None = None,
    ) -> Callable[..., Coroutine[Any, Any, Execution]]:
        """Schedules a call: `await docket.add(function, when, key)(*args, **kwargs)`.

        A key that is waiting or running is left as it is. Raises TaskNotRegistered (a KeyError) for
        an unknown name, TypeError for arguments that the function does not take, Unserializable or
        PayloadTooLarge for arguments that cannot be stored, ServerFull, or ServerUnreachable; in
        each case nothing was stored, unless the ServerUnreachable says `maybe_stored`: then the
        answer was lost. Before that the call is repeated for up to `add_patience`, if it cannot
        become two tasks by that: while nothing was sent, and after a lost answer if docket made up
        the key (and remembers finished tasks, `execution_ttl`).
        """
        return self._pending_call(function, when, key, replace=False)

    @overload
    def replace(
        self, function: Callable[P, Awaitable[R]], when: datetime, key: str
    ) -> Callable[P, Coroutine[Any, Any, Execution[R]]]: ...
    @overload
    def replace(self, function: str, when: datetime, key: str) -> Callable[..., Coroutine[Any, Any, Execution]]: ...
    def replace(
        self, function: Callable[..., Awaitable[Any]] | str, when: datetime, key: str
    ) -> Callable[..., Coroutine[Any, Any, Execution]]:
        """Schedules a call in place of whatever that key has waiting. A run of the key that is
        going on no longer counts.

        Raises as `add`; after a lost answer it is not repeated.
        """
        return self._pending_call(function, when, key, replace=True)

    @overload
    def call(
        self, function: Callable[P, Awaitable[R]], when: datetime | None = None, key: str | None = None
    ) -> Callable[P, TaskCall]: ...
    @overload
    def call(self, function: str, when: datetime | None = None, key: str | None = None) -> Callable[..., TaskCall]: ...
    def call(
        self,
        function: Callable[..., Awaitable[Any]] | str,
        when: datetime | None = None,
        key: str | None = None,
    ) -> Callable[..., TaskCall]:
        """A call to be scheduled later, by `add_many` or `replace_many`. Sent again while it waits
        or runs, it changes nothing."""
        found, name = self.registry.find(function)
        check_when_and_key(when, key, name)
        check = argument_check(found)

        def build(*args: Any, **kwargs: Any) -> TaskCall:
            check(*args, **kwargs)
            task_key, unsent = key, None
            if task_key is None:
                task_key = new_key()
                unsent = [task_key]
            return TaskCall(found, args, kwargs, task_key, when or self.now(), name, False, unsent)

        return build

    async def add_many(self, calls: Iterable[TaskCall], chunk_size: Batch = 1000) -> list[Execution]:
        """Schedules many calls, in chunks; each is judged on its own. An error marks only its
        execution (`Disposition.FAILED`, `schedule_exception`)."""
        return await self._schedule_many(calls, chunk_size, replace=False)

    async def replace_many(self, calls: Iterable[TaskCall], chunk_size: Batch = 1000) -> list[Execution]:
        """As `add_many`, replacing what the keys have waiting;
        of several calls with one key the last counts."""
        return await self._schedule_many(calls, chunk_size, replace=True)

    async def schedule(self, execution: Execution, *, replace: bool = False) -> None:
        """Schedules an execution as it stands."""
        if is_tracing():
            with task_span(self, "schedule", execution):
                execution.trace_context = execution.trace_context or inject_context()
                await self.scheduler.write_down(execution, replace)
        else:
            await self.scheduler.write_down(execution, replace)

    def _pending_call(
        self, function: Callable[..., Awaitable[Any]] | str, when: datetime | None, key: str | None, *, replace: bool
    ) -> PendingCall:
        found, name = self.registry.find(function)
        check_when_and_key(when, key, name)
        return PendingCall(self, found, name, when, key, replace, argument_check(found))

    async def _schedule_many(self, calls: Iterable[TaskCall], chunk_size: Batch, *, replace: bool) -> list[Execution]:
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size={chunk_size}: it must be at least 1, or None for a single chunk")
        executions: list[Execution] = []
        with batch_span(self, "replace_many" if replace else "add_many", executions):
            trace_context = inject_context()
            for call in calls:
                execution = new_execution(
                    self, call.function, call.args, call.kwargs, call.key, call.when, call.function_name, trace_context
                )
                execution.fresh_key, execution.seed = call.spend_fresh_key(), call.seed
                executions.append(execution)
            size = chunk_size or max(len(executions), 1)
            for start in range(0, len(executions), size):
                await self.scheduler.write_down_many(executions[start : start + size], replace)
        return executions

    # Tasks that are there

    async def cancel(self, key: str) -> None:
        """Removes a waiting task at once, and asks the worker of a running one to cancel it. An
        unknown key is no error."""
        with request_span(self, "cancel", {"docket.key": key}):
            # One that runs is counted by its worker, when it has ended.
            if await self.ledger.cancel(key) == 1:
                TASKS_CANCELLED.add(1, self.labels())

    async def get_execution(self, key: str) -> Execution[Any] | None:
        """The task of that key, finished or not, or
        None. Functions unknown here are no obstacle."""
        return await find_execution(self, key)

    async def clear(self) -> int:
        """Cancels everything that waits; what runs goes on. Returns how many tasks were removed."""
        with request_span(self, "clear"):
            removed = await self.ledger.clear()
        TASKS_CANCELLED.add(removed, self.labels())
        return removed

    # Strikes

    async def strike(
        self,
        function: Callable[..., Awaitable[Any]] | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Blocks tasks by function, by a parameter's value, or
        by both, before they are scheduled and before they run.

        Returns when the server has the strike and this process applies it; other processes do
        within milliseconds. A task that runs already goes on. Raises ValueError if nothing is
        named, the operator is unknown or the value of `between` is not a pair, Unserializable if
        the value cannot be stored.
        """
        await self._instruct(Strike(_name_or_none(function), parameter, Operator.read(operator), value))

    async def restore(
        self,
        function: Callable[..., Awaitable[Any]] | str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Takes back the strike made with equal arguments; if there is none, nothing happens."""
        await self._instruct(Restore(_name_or_none(function), parameter, Operator.read(operator), value))

    async def _instruct(self, instruction: StrikeInstruction) -> None:
        with request_span(self, instruction.direction, instruction.labels()):
            await self.strike_list.send_instruction(instruction)

    async def wait_for_strikes_loaded(self) -> None:
        """Returns when every strike that was in force
        when the docket was opened is applied here."""
        await self.strike_list.wait_for_strikes_loaded()

    # The whole

    async def snapshot(self) -> DocketSnapshot:
        """Everything that waits or runs, and who works here."""
        return await take_snapshot(self)

    async def workers(self) -> list[WorkerInfo]:
        """The workers that run now."""
        return await read_workers(self.ledger)

    async def task_workers(self, task_name: str) -> list[WorkerInfo]:
        """The workers that know a task."""
        return await read_workers(self.ledger, task_name)

    def watch(self, key: str, ready: asyncio.Event | None = None) -> AsyncGenerator[StateEvent | ProgressEvent]:
        """State and progress of a task now, then every event."""
        return watch(self, key, ready)

    async def write_progress(self, change: ProgressChange) -> bytes | Unwritten:
        """The progress of the task after the change, as JSON, or why it was not changed."""
        return await self._progressing.submit(change)


def _not_open() -> NotOpen:
    return NotOpen("the docket is not open: use it inside `async with Docket(…) as docket:`")


def _name_or_none(function: Callable[..., Awaitable[Any]] | str | None) -> str | None:
    return function if function is None or isinstance(function, str) else name_of(function)
