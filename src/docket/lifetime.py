"""The life of a docket: its settings, and the parts that it opens and closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from docket.attached import AttachedWorkers
from docket.bulk import BulkScheduler
from docket.codec import Keyring, Payloads
from docket.codec.keyring import as_keyring
from docket.durability import Durability, check_durability
from docket.errors import NotOpen
from docket.execution.manual_runs import ManualRuns
from docket.ledger import Batcher, Ledger, ProgressChange, Unwritten
from docket.ledger.foreign import warn_of_foreign
from docket.ledger.tasks import BATCH
from docket.model.keeping import Keep, as_keep, check_keep
from docket.model.losses import MAX_LOSSES, check_max_losses
from docket.model.times import check_durations, duration_ms
from docket.registry import Registry
from docket.result_store import ResultStore
from docket.storage.data_safety import warn_of_missing_replica
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Subscriptions
from docket.storage.urls import ServerKind, parse
from docket.strikelist import StrikeList
from docket.tasks import standard_tasks

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.credentials import CredentialProvider

# Larger arguments belong in a store of their own; the task carries their address.
MAX_PAYLOAD = 8 * 1024 * 1024


class DocketLifetime:
    """A docket without its verbs: `Docket` adds them. An async context manager."""

    accept: frozenset[str]
    signing: Keyring | None
    exceptions: tuple[type[Exception], ...]
    payloads: Payloads
    _result_store: Any = None
    _how_to_open: str = "use it inside `async with Docket(…) as docket:`"

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
        keep_failures: Keep | timedelta | int | None = None,
        durability: Durability = "primary",
        durability_timeout: timedelta = timedelta(seconds=1),
        pickled_strikes: bool = False,
        codec: str = "pickle",
        accept: Collection[str] = (),
        signing: Keyring | str | PathLike[str] | None = None,
        encrypt: bool = False,
        exceptions: Collection[type[Exception]] = (),
    ) -> None:
        check_durations(
            "Docket", heartbeat_interval=heartbeat_interval, execution_ttl=execution_ttl, add_patience=add_patience
        )
        _check(heartbeat_interval, missed_heartbeats, add_patience)
        check_durations("Docket", durability_timeout=durability_timeout)
        check_durability(durability, durability_timeout)
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
        self.keys: Keys = self._name_keys()
        self.attached: AttachedWorkers = AttachedWorkers()
        self._ledger: Ledger | None = None
        self._subscriptions: Subscriptions | None = None
        self._manual_runs: ManualRuns | None = None
        self._stack: AsyncExitStack | None = None
        self._closing: asyncio.Task[None] | None = None
        self._scheduler: BulkScheduler | None = None
        self._progress_batcher: Batcher[ProgressChange, bytes | Unwritten]

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

    def _name_keys(self) -> Keys:
        cluster = parse(self.url).kind is ServerKind.CLUSTER
        if cluster and (not self.name or self.name.startswith("}")):
            raise ValueError(f"docket name {self.name!r}: on a cluster it must not be empty or begin with a brace")
        return Keys(self.name, database=self.server.database, cluster=cluster)

    async def __aenter__(self) -> Self:
        assert self._stack is None, "this docket is already open"
        self._closing = None
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            self.keys = self._name_keys()
            ttl_ms = max(duration_ms(self.execution_ttl), 0)
            self._ledger = Ledger(self.server, self.keys, ttl_ms, self.max_losses, self.keep_failures)
            self._subscriptions = Subscriptions(self.server, self.name, self.keys.root, self.keys)
            stack.push_async_callback(self._subscriptions.aclose)
            stack.push_async_callback(self.strike_list.close)
            await self.strike_list.follow(self.server, self._subscriptions, self.keys)
            await warn_of_foreign(self._ledger, self.name)
            if self.durability == "replica":
                await warn_of_missing_replica(self.server, self.keys.root)
            self._scheduler = BulkScheduler(self, self._ledger)
            stack.push_async_callback(self._scheduler.flush)
            self._progress_batcher = Batcher(
                self._ledger.progress,
                most=BATCH,
                weigh=lambda change: change.weight,
                in_flight=2,
                name=f"{self.name} - progress",
            )
            stack.push_async_callback(self._progress_batcher.flush)
            manual_lease_ms = max(duration_ms(self.heartbeat_interval * self.missed_heartbeats), 1)
            self._manual_runs = ManualRuns(self._ledger, manual_lease_ms, self.name)
            stack.push_async_callback(self._manual_runs.aclose)
            self.attached.open()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Closes the connections. Workers that still run on this docket requeue their tasks
        first."""
        if self._closing is not None:
            await asyncio.wait([self._closing])
        elif self._stack is not None and self.attached.is_inside():
            # A task body closes its own docket: waiting for that body here would never end.
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
        """What the docket keeps on its server. Raises NotOpen."""
        if self._stack is None or self._ledger is None:
            raise self._not_open()
        return self._ledger

    @property
    def subscriptions(self) -> Subscriptions:
        """The channels that this docket listens to. Raises NotOpen."""
        if self._stack is None or self._subscriptions is None:
            raise self._not_open()
        return self._subscriptions

    @property
    def manual_runs(self) -> ManualRuns:
        """The open manual runs of this docket. Raises NotOpen."""
        if self._stack is None or self._manual_runs is None:
            raise self._not_open()
        return self._manual_runs

    @property
    def scheduler(self) -> BulkScheduler:
        """Writes new tasks, in batches. Raises NotOpen."""
        if self._stack is None or self._scheduler is None:
            raise self._not_open()
        return self._scheduler

    @asynccontextmanager
    async def redis(self) -> AsyncGenerator[Redis]:
        """A redis-py client (bytes in, bytes out) on the docket's server."""
        if self._stack is None:
            raise self._not_open()
        yield self.server.client

    @property
    def result_storage(self) -> Any:
        """The store from which clients read results by
        `execution.result_key`, in the collection `results_collection`.

        This is the store that was given. Without one, while the docket is open, it is a view of the
        results in the task records.
        """
        if self.given_result_storage is not None or self._stack is None:
            return self.given_result_storage
        if self._result_store is None:
            self._result_store = ResultStore(self.ledger, self.payloads)
        return self._result_store

    def _not_open(self) -> NotOpen:
        return NotOpen(f"the docket is not open: {self._how_to_open}")


def _check(heartbeat_interval: timedelta, missed_heartbeats: int, add_patience: timedelta) -> None:
    if heartbeat_interval <= timedelta(0) or missed_heartbeats < 1:
        raise ValueError("heartbeat_interval must be positive and missed_heartbeats at least 1")
    if add_patience < timedelta(0):
        raise ValueError(f"Docket(add_patience={add_patience}): it cannot be negative; 0 turns repeating off")
