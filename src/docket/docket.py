"""The docket: its settings and its life, and the verbs of producers, which schedule tasks and find
them again. The verbs of operators are in `operator_verbs.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, Self, TypeVar, Unpack, overload

from docket._compat import PydocketKeys
from docket.attached import AttachedWorkers
from docket.calls import (
    CallBuilders,
    CallFields,
    PendingCall,
    ScheduledBy,
    batch_span,
    check_chunk_size,
    executions_of,
    stream_calls,
    task_span,
    with_options,
)
from docket.codec import Keyring, Payloads
from docket.codec.keyring import as_keyring
from docket.durability import Durability, check_durability
from docket.errors import NotOpen
from docket.execution import Execution, ProgressEvent, StateEvent, TaskCall, TaskFunction
from docket.execution.manual_runs import ManualRuns
from docket.execution.waiting import watch
from docket.inspection.executions import find_execution
from docket.inspection.snapshot import DocketSnapshot, RunningExecution, WorkerInfo
from docket.instrumentation import inject_context, is_tracing
from docket.ledger import Ledger, ProgressChange, Unwritten
from docket.model.loggers import protect_own_loggers
from docket.model.options import EVERYWHERE, NAMED_OBJECT, WORKERS, DeclaredOption, Option, check_options
from docket.open_parts import OpenParts, name_keys
from docket.operator_verbs import OperatorVerbs
from docket.registry import Registry, TaskCollection
from docket.scheduler import Scheduler
from docket.storage.keys import Keys
from docket.storage.schema.requests import AddOptions
from docket.storage.server import CredentialProvider, Server
from docket.storage.subscriptions import Subscriptions
from docket.strikelist import StrikeList
from docket.strikelist.pauses import PauseStore
from docket.strikelist.stored import RuleValues
from docket.tasks import standard_tasks

from .model.bounds import MAX_LOSSES, check_max_losses
from .model.retention import Keep, as_keep, check_keep

if TYPE_CHECKING:
    from redis.asyncio import Redis

P = ParamSpec("P")
R = TypeVar("R")

protect_own_loggers()

# Larger arguments belong in a store of their own; the task carries their address.
MAX_PAYLOAD = 8 * 1024 * 1024

__all__ = ["Docket", "DocketSnapshot", "RunningExecution", "TaskCollection", "WorkerInfo"]


class Docket(OperatorVerbs, PydocketKeys):
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

    accept: frozenset[str]
    signing: Keyring | None
    exceptions: tuple[type[Exception], ...]
    payloads: Payloads
    _how_to_open: str = "use it inside `async with Docket(…) as docket:`"

    def __init__(
        self,
        name: Annotated[
            str, Option("The name of the docket.", metavar="NAME", flags=("--docket", "-d"), variables=("DOCKET_NAME",))
        ] = "docket",
        url: Annotated[
            str,
            Option(
                "The server: redis://…, valkey://…, redis+cluster://… or redis+sentinel://…; "
                "or embedded:///folder, which needs no server.",
                metavar="URL",
                flags=("--url", "-u"),
                variables=("DOCKET_URL", "DOCKET_REDIS_URL"),
            ),
        ] = "redis://localhost:6379/0",
        heartbeat_interval: Annotated[
            timedelta, Option("The time between two heartbeats of a worker.", is_positive=True)
        ] = timedelta(seconds=2),
        missed_heartbeats: Annotated[
            int, Option("A worker counts as dead after missing this many heartbeats.", least=1)
        ] = 5,
        execution_ttl: Annotated[
            timedelta, Option("Keep finished tasks and their results for this long.", must_agree=EVERYWHERE)
        ] = timedelta(minutes=15),
        result_storage: Annotated[
            Any,
            Option(
                "Store results here instead of on the server.",
                metavar=NAMED_OBJECT,
                attribute="given_result_storage",
                must_agree=EVERYWHERE,
            ),
        ] = None,
        enable_internal_instrumentation: bool = False,
        credential_provider: Annotated[
            CredentialProvider | None,
            Option("Provides the user name and password for the server.", metavar=NAMED_OBJECT),
        ] = None,
        *,
        max_payload: Annotated[
            int,
            Option("The largest size of the arguments or of the result, in bytes.", must_agree=EVERYWHERE),
        ] = MAX_PAYLOAD,
        add_patience: Annotated[
            timedelta,
            Option(
                "Retry an add for this long while the server fails.",
                least=timedelta(0),
                remedy="0 turns repeating off",
            ),
        ] = timedelta(seconds=2),
        max_losses: Annotated[
            int, Option("A task whose worker dies this many times becomes a dead letter.", must_agree=WORKERS)
        ] = MAX_LOSSES,
        keep_failures: Annotated[
            Keep | timedelta | int | None,
            Option(
                "Keep tasks that failed for good for this long; 0 keeps none.",
                metavar="DURATION",
                default="7d",
                attribute="given_keep_failures",
                must_agree=WORKERS,
                page="dead-letters.md",
            ),
        ] = None,
        durability: Annotated[
            Durability,
            Option(
                "Where a task has to be stored before an add returns: on the primary, or on a replica as well.",
                metavar="primary|replica",
                page="servers.md#replicas",
            ),
        ] = "primary",
        durability_timeout: Annotated[
            timedelta,
            Option("How long an add waits for a replica, with --durability replica.", least=timedelta(milliseconds=1)),
        ] = timedelta(seconds=1),
        pickled_strikes: Annotated[
            bool,
            Option(
                "Pickle the values of strikes. Whoever writes to the server can then run code here.",
                page="operators.md#values-of-other-types",
            ),
        ] = False,
        codec: Annotated[
            str,
            Option(
                "How arguments and results are stored: pickle or json.",
                metavar="NAME",
                attribute="payloads.codec.name",
                must_agree=EVERYWHERE,
                page="payloads.md",
            ),
        ] = "pickle",
        accept: Annotated[
            Collection[str],
            Option("Also read payloads of these kinds, separated by commas: pickle, json, unsigned.", metavar="KINDS"),
        ] = (),
        signing: Annotated[
            Keyring | str | PathLike[str] | None,
            Option(
                "Sign payloads with the first key of this file (lines of id:base64), "
                "and refuse what no key of it signed.",
                metavar="FILE",
                flags=("--signing-keys-file",),
            ),
        ] = None,
        encrypt: Annotated[
            bool, Option("Encrypt payloads with the signing key.", attribute="payloads.encrypts")
        ] = False,
        exceptions: Collection[type[Exception]] = (),
    ) -> None:
        # The settings as they are declared: `settings.py` and `declaration.py` read them.
        self.declared: Mapping[str, DeclaredOption] = check_options(Docket, locals())
        check_durability(durability)
        self.name = name
        self.url = url
        self.heartbeat_interval = heartbeat_interval
        self.missed_heartbeats = missed_heartbeats
        self.execution_ttl = execution_ttl
        self.given_result_storage = result_storage
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.credential_provider = credential_provider
        self.max_payload = max_payload
        self.add_patience = add_patience
        self.durability: Durability = durability
        self.durability_timeout = durability_timeout
        self.max_losses: int = check_max_losses("Docket(max_losses=…)", max_losses)
        self.given_keep_failures: Keep | timedelta | int | None = check_keep(keep_failures)
        self._seal_with(codec, accept, signing, encrypt, exceptions)
        self.pickled_strikes = pickled_strikes
        self.strike_list: StrikeList = self._new_strike_list()
        self.registry: Registry = Registry()
        for function in standard_tasks:
            self.registry.register(function)
        self.server: Server = Server(url, credential_provider, name=name)
        self.keys: Keys = name_keys(self.server, name)
        self.attached: AttachedWorkers = AttachedWorkers()
        self._open_parts: OpenParts | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def keep_failures(self) -> Keep:
        """How tasks that failed for good are kept. The default depends on `execution_ttl`."""
        return as_keep(self.given_keep_failures, self.execution_ttl)

    def _seal_with(
        self,
        codec: str,
        accept: Collection[str],
        signing: Keyring | str | PathLike[str] | None,
        encrypt: bool,
        exceptions: Collection[type[Exception]],
    ) -> None:
        self.accept = frozenset((accept,) if isinstance(accept, str) else accept)
        self.signing = as_keyring(signing)
        self.exceptions = tuple(exceptions)
        self.payloads = Payloads(
            codec, self.signing, self.accept, docket=self.name, encrypt=encrypt, exceptions=exceptions
        )

    def _new_strike_list(self) -> StrikeList:
        return StrikeList(
            self.url,
            self.name,
            self.enable_internal_instrumentation,
            self.credential_provider,
            pickled_strikes=self.pickled_strikes,
            payloads=self.payloads,
        )

    # Opening and closing

    async def __aenter__(self) -> Self:
        assert self._open_parts is None, "this docket is already open"
        self._closing = None
        parts = await OpenParts.open(self)
        self.keys = parts.keys
        self.attached.open()
        self._open_parts = parts
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Closes the connections. Workers that still run on this docket requeue their tasks
        first."""
        if self._closing is not None:
            await asyncio.wait([self._closing])
        elif self._open_parts is not None and self.attached.is_inside():
            # A task body closes its own docket: waiting for that body here would never end.
            self._closing = asyncio.create_task(self._end_and_close(), name=f"{self.name} - closing")
        elif self._open_parts is not None:
            await self._end_and_close()

    async def _end_and_close(self) -> None:
        try:
            await self.attached.end_all()
        finally:
            await self._close()

    async def _close(self) -> None:
        parts, self._open_parts = self._open_parts, None
        if parts is not None:
            await parts.aclose()

    @property
    def _parts(self) -> OpenParts:
        if self._open_parts is None:
            raise NotOpen(f"the docket is not open: {self._how_to_open}")
        return self._open_parts

    # Parts of an open docket

    @property
    def ledger(self) -> Ledger:
        """The tasks of the docket, and all else that it keeps on its server. Raises NotOpen."""
        return self._parts.ledger

    @property
    def subscriptions(self) -> Subscriptions:
        """The channels that this docket listens to. Raises NotOpen."""
        return self._parts.subscriptions

    @property
    def manual_runs(self) -> ManualRuns:
        """The open manual runs of this docket. Raises NotOpen."""
        return self._parts.manual_runs

    @property
    def scheduler(self) -> Scheduler:
        """Writes new tasks, in batches. Raises NotOpen."""
        return self._parts.scheduler

    @property
    def pause_store(self) -> PauseStore:
        """The pauses as they are stored."""
        return PauseStore(self.ledger, RuleValues(pickled=self.pickled_strikes), self.payloads)

    @asynccontextmanager
    async def redis(self) -> AsyncGenerator[Redis]:
        """A redis-py client (bytes in, bytes out) on the docket's server."""
        yield self._parts.server.client

    @property
    def result_storage(self) -> Any:
        """The store from which clients read results by
        `execution.result_key`, in the collection `results_collection`.

        This is the store that was given. Without one, while the docket is open, it is a view of the
        results in the task records.
        """
        if self.given_result_storage is not None or self._open_parts is None:
            return self.given_result_storage
        return self._open_parts.result_store

    # Names

    @property
    def _docket(self) -> Docket:
        return self

    @property
    def tasks(self) -> dict[str, TaskFunction]:
        """The registered functions by name, the built-in tasks included."""
        return self.registry.tasks

    def now(self) -> datetime:
        """The time of the docket, with its time zone. Tests can set it."""
        return self.server.clock.now()

    def labels(self) -> dict[str, str]:
        """The labels of metrics and spans that name this docket."""
        return {"docket.name": self.name}

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
        self,
        function: Callable[P, R],
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> ScheduledBy[P, R]: ...
    @overload
    def add(
        self, function: str, when: datetime | None = None, key: str | None = None, **options: Unpack[AddOptions]
    ) -> Callable[..., Coroutine[Any, Any, Execution]]: ...
    @with_options
    def add(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
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
        return PendingCall(self, CallFields(self.registry, function, when, key, options, False))

    @overload
    def replace(
        self, function: Callable[P, R], when: datetime, key: str, **options: Unpack[AddOptions]
    ) -> ScheduledBy[P, R]: ...
    @overload
    def replace(
        self, function: str, when: datetime, key: str, **options: Unpack[AddOptions]
    ) -> Callable[..., Coroutine[Any, Any, Execution]]: ...
    @with_options
    def replace(
        self, function: TaskFunction | str, when: datetime, key: str, **options: Unpack[AddOptions]
    ) -> Callable[..., Coroutine[Any, Any, Execution]]:
        """Schedules a call in place of the waiting task of that key. If the key has a run now, that
        run no longer counts.

        Raises the same errors as `add`. After a lost answer docket does not repeat the request.
        """
        return PendingCall(self, CallFields(self.registry, function, when, key, options, True))

    @overload
    def call(
        self,
        function: Callable[P, Any],
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> Callable[P, TaskCall]: ...
    @overload
    def call(
        self, function: str, when: datetime | None = None, key: str | None = None, **options: Unpack[AddOptions]
    ) -> Callable[..., TaskCall]: ...
    @with_options
    def call(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> Callable[..., TaskCall]:
        """A call to schedule later, with `add_many` or `replace_many`. If it is sent again while
        its task waits or runs, nothing changes."""
        return self._call_builders.get(function, when, key, options)

    @cached_property
    def _call_builders(self) -> CallBuilders:
        return CallBuilders(self.registry, self.now)

    async def add_many(self, calls: Iterable[TaskCall], chunk_size: int | None = 1000) -> list[Execution]:
        """Schedules many calls, in chunks. Each call succeeds or fails on its own: an error marks
        only its execution (`Disposition.FAILED`, `schedule_exception`)."""
        return await self._schedule_many(calls, chunk_size, replace=False)

    async def replace_many(self, calls: Iterable[TaskCall], chunk_size: int | None = 1000) -> list[Execution]:
        """Schedules many calls in place of the waiting tasks of their keys, as `add_many` does. If
        several calls have the same key, the last one counts."""
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

    async def _schedule_many(
        self, calls: Iterable[TaskCall], chunk_size: int | None, *, replace: bool
    ) -> list[Execution]:
        check_chunk_size(chunk_size)
        executions: list[Execution] = []
        with batch_span(self, "replace_many" if replace else "add_many", executions):
            # All executions are made before the first is sent: an iterator that raises leaves
            # nothing behind.
            executions += executions_of(self, calls)
            await self.scheduler.schedule_many(executions, replace, chunk_size)
        return executions

    # Unfinished and finished tasks

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
        return await self._parts.progress_batcher.submit(change)

    async def wait_for_strikes_loaded(self) -> None:
        """Returns when this process applies every strike that was in force when the docket was
        opened."""
        await self.strike_list.wait_for_strikes_loaded()
