"""Whether the server whose replica has confirmed a write still is the primary
(docs/design/replicas.md)."""

from __future__ import annotations

from .connection import Connection
from .faults import SERVER_ERRORS
from .nodes import SentinelNodes
from .pipeline import Pipeline
from .threads import in_thread

# Sentinels need longer than this to replace a primary. So a primary that has answered in less time
# is not replaced, unless it was before.
SLOW_SECONDS = 0.3


class PrimaryCheck:
    """Asks the sentinels after the first write on a connection, and after each slow one: the server
    may have been restarted, or paused, while they replaced it. Until they have told it and its
    replicas, it takes itself for the primary, and a replica confirms what will be lost."""

    def __init__(self, nodes: SentinelNodes, patience: float) -> None:
        self._nodes = nodes
        self._patience = patience
        # The connection whose server was the primary when it was asked for.
        self._checked: Pipeline | None = None

    async def is_primary(self, connection: Connection, seconds: float) -> bool:
        """`seconds` is how long the write has taken."""
        pipeline = connection.pipeline
        if pipeline is not None and pipeline is self._checked and seconds < SLOW_SECONDS:
            return True
        self._checked = None
        try:
            is_primary = await in_thread(self._nodes.agree_on, connection.address, self._patience)
        except SERVER_ERRORS:
            return False
        if is_primary and connection.pipeline is pipeline:
            self._checked = pipeline
        return is_primary
