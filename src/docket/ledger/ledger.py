"""The ledger of one docket: every script is a method of one of its areas, and uses the server's
clock."""

from __future__ import annotations

from datetime import datetime

from docket.model.bounds import MAX_LOSSES
from docket.model.retention import Keep
from docket.model.times import from_ms
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

from .audit import Audit
from .calls import ScriptCalls
from .deliveries import Deliveries
from .fleet import Fleet
from .foreign import ForeignTasks
from .history import History
from .letters import Letters
from .limits import Limits
from .payloads import PayloadStore
from .queries import Queries
from .rules import Pauses
from .statistics import Statistics
from .tasks import Tasks


class Ledger(ScriptCalls):
    """The tasks and workers of one docket. Safe to share between tasks of one event loop."""

    def __init__(
        self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES, keep: Keep | None = None
    ) -> None:
        super().__init__(server, keys, ttl_ms, max_losses, keep)
        self.tasks: Tasks = Tasks(self)
        self.deliveries: Deliveries = Deliveries(self)
        self.fleet: Fleet = Fleet(self)
        self.letters: Letters = Letters(self)
        self.limits: Limits = Limits(self)
        self.pauses: Pauses = Pauses(self)
        self.statistics: Statistics = Statistics(self)
        self.history: History = History(self)
        self.audit: Audit = Audit(self)
        self.payloads: PayloadStore = PayloadStore(server, keys)
        self.queries: Queries = Queries(self, self.payloads)
        self.foreign: ForeignTasks = ForeignTasks(self, self.payloads)

    async def ping(self) -> None:
        """Sends a command that does nothing, to measure the round trip to the server."""
        await self.server.client.execute_command("PING")

    async def server_ms(self) -> float:
        """The server's time in milliseconds."""
        seconds, microseconds = await self.server.ask(text_bytes(self.keys.stream), "TIME")
        return int(seconds) * 1000 + int(microseconds) / 1000

    async def now(self) -> datetime:
        """The server's time, or the time at which a test holds the clock of tasks. The clock of the
        machine that asks may be wrong by days."""
        clock = self.server.clock
        return clock.now() if clock.is_frozen else from_ms(await self.server_ms())
