"""Whether the server whose replicas have confirmed a write still is the primary
(docs/design/replicas.md)."""

from __future__ import annotations

import re

from .connection import Connection
from .faults import SERVER_ERRORS
from .nodes import SentinelNodes
from .pipeline import Pipeline
from .threads import in_thread

# Sentinels need longer than this to replace a primary. So a primary that answers faster
# has not been replaced since its last answer.
SLOW_SECONDS = 0.3
# A replica that has answered within the last second. Newer servers write more behind it.
_PRESENT = re.compile(rb"^slave\d+:.*state=online,.*lag=[01]\b", re.MULTILINE)


class PrimaryCheck:
    """Asks the sentinels after the first write on a connection, after each slow one, and after each
    one that fewer replicas have confirmed than before. The server may have been restarted, or
    paused, while they replaced it. Or they replace it while it works: the replica that they promote
    leaves it. Until they have told the server and its other replicas, it believes that it is
    the primary, and these replicas confirm writes that will be lost."""

    def __init__(self, nodes: SentinelNodes, patience: float) -> None:
        self._nodes = nodes
        self._patience = patience
        # The connection whose server was the primary when it was asked for.
        self._checked: Pipeline | None = None
        # How many replicas there were when they were counted.
        self._replicas = 1

    def replicas_to_wait_for(self, connection: Connection) -> int:
        """The sentinels are asked after the first write on a connection. So it need not wait for
        the replicas that another server had."""
        return self._replicas if connection.pipeline is self._checked else 1

    async def is_primary(self, connection: Connection, seconds: float, confirmed: int) -> bool:
        """`seconds` is how long the write has taken, `confirmed` how many replicas have it."""
        pipeline = connection.pipeline
        if pipeline is not None and pipeline is self._checked and seconds < SLOW_SECONDS:
            # After each write: a replica that has just come may be promoted a moment later.
            await self._count(connection)
            if confirmed >= self._replicas:
                return True
        self._checked = None
        try:
            is_primary = await in_thread(self._nodes.agree_on, connection.address, self._patience)
        except SERVER_ERRORS:
            return False
        if is_primary and connection.pipeline is pipeline:
            self._checked = pipeline
            # A replica that is gone, or lags, does not hold up further writes.
            self._replicas = confirmed
        return is_primary

    async def _count(self, connection: Connection) -> None:
        """This write and further ones wait for replicas that have come in the meantime, too."""
        try:
            info: bytes = await connection.ask("INFO", "replication")
        except SERVER_ERRORS:
            return
        self._replicas = max(self._replicas, len(_PRESENT.findall(info)))
