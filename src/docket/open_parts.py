"""The parts of a docket that exist while it is open."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from docket.execution.manual_runs import ManualRuns
from docket.execution.stored_results import ResultStore
from docket.ledger import Batcher, Ledger, ProgressChange, Unwritten
from docket.ledger.tasks import BATCH
from docket.model.times import duration_ms
from docket.scheduler import Scheduler
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Subscriptions

from .storage.client.urls import ServerKind, parse
from .storage.server import warn_of_missing_replica

if TYPE_CHECKING:
    from docket.docket import Docket


class OpenParts:
    """The parts of an open docket. They open and close together."""

    def __init__(self, docket: Docket) -> None:
        """The server is connected: only then the number of its database is known."""
        self.server: Server = docket.server
        self.keys: Keys = name_keys(docket.server, docket.name)
        ttl_ms = max(duration_ms(docket.execution_ttl), 0)
        self.ledger: Ledger = Ledger(docket.server, self.keys, ttl_ms, docket.max_losses, docket.keep_failures)
        self.subscriptions: Subscriptions = Subscriptions(docket.server, docket.name, self.keys.root, self.keys)
        self.scheduler: Scheduler = Scheduler(docket, self.ledger)
        self.progress_batcher: Batcher[ProgressChange, bytes | Unwritten] = Batcher(
            self.ledger.tasks.progress,
            most=BATCH,
            weigh=lambda change: change.weight,
            in_flight=2,
            name=f"{docket.name} - progress",
        )
        manual_lease_ms = max(duration_ms(docket.heartbeat_interval * docket.missed_heartbeats), 1)
        self.manual_runs: ManualRuns = ManualRuns(self.ledger, manual_lease_ms, docket.name)
        self.result_store: ResultStore = ResultStore(self.ledger, docket.payloads)
        self._stack: AsyncExitStack = AsyncExitStack()

    @classmethod
    async def open(cls, docket: Docket) -> OpenParts:
        """Connects to the server. If a part cannot be opened, those before it are closed."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(docket.server)
            parts = cls(docket)
            stack.push_async_callback(parts.subscriptions.aclose)
            stack.push_async_callback(docket.strike_list.close)
            await docket.strike_list.follow(docket.server, parts.subscriptions, parts.keys)
            await parts.ledger.foreign.warn(docket.name)
            if docket.durability == "replica":
                await warn_of_missing_replica(docket.server, parts.keys.root)
            stack.push_async_callback(parts.scheduler.flush)
            stack.push_async_callback(parts.progress_batcher.flush)
            stack.push_async_callback(parts.manual_runs.aclose)
            parts._stack = stack.pop_all()
        return parts

    async def aclose(self) -> None:
        """Sends the tasks and progress that still wait, then closes the connections."""
        await self._stack.aclose()


def name_keys(server: Server, name: str) -> Keys:
    """The keys of a docket. Raises ValueError for a name that a cluster cannot have."""
    cluster = parse(server.url).kind is ServerKind.CLUSTER
    if cluster and (not name or name.startswith("}")):
        raise ValueError(f"docket name {name!r}: on a cluster it must not be empty or begin with a brace")
    return Keys(name, database=server.database, cluster=cluster)
