"""The ledger of one docket. Each method is one script, which uses the server's clock."""

from __future__ import annotations

from docket.model.keeping import Keep
from docket.model.losses import MAX_LOSSES
from docket.storage.keys import Keys
from docket.storage.server import Server

from .deliveries import DeliveryVerbs
from .payloads import PayloadStore
from .tasks import TaskVerbs
from .workers import WorkerVerbs


class Ledger(TaskVerbs, DeliveryVerbs, WorkerVerbs):
    """The tasks and workers of one docket. Safe to share between tasks of one event loop."""

    def __init__(
        self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES, keep: Keep | None = None
    ) -> None:
        super().__init__(server, keys, ttl_ms, max_losses, keep)
        self.payloads: PayloadStore = PayloadStore(server, keys)
