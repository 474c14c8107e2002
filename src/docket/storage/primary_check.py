"""Whether the server whose replicas have confirmed a write still is the primary
(docs/design/replicas.md)."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter

from .connection import Connection
from .faults import SERVER_ERRORS
from .nodes import Agreement, SentinelNodes
from .pipeline import Pipeline
from .threads import in_thread

# Sentinels need longer than this to replace a primary. So a primary that answers faster
# has not been replaced since its last answer.
SLOW_SECONDS = 0.3
# How long writes do not wait for a replica that was too slow for one of them.
LAG_SECONDS = 10.0
# A replica that nobody has seen does not come, become known to the sentinels and get promoted in
# this time.
IDLE_SECONDS = 10.0
# The same for one that they know and that is down.
RETURN_SECONDS = 1.0
# Between two questions to the sentinels. Writes that are confirmed in the meantime share the next.
PAUSE_SECONDS = 0.05
# A replica that has answered within the last second. Newer servers write more behind it.
_PRESENT = re.compile(rb"^slave\d+:(.*?),state=online,.*lag=[01]\b", re.MULTILINE)

# How many replicas have each address. Behind a translated network it may be more than one.
Replicas = Counter[bytes]


class PrimaryCheck:
    """Asks the sentinels whether the server that has confirmed a write is the primary, unless all
    replicas that they could promote have confirmed it quickly. The server may have been restarted,
    or paused, while they replaced it. Or they replace it while it works: the replica that they
    promote leaves it. Until they have told the server and its other replicas, it believes that it
    is the primary, and these replicas confirm writes that will be lost."""

    def __init__(self, nodes: SentinelNodes, patience: float) -> None:
        self._questions = _Questions(nodes, patience)
        # The connection whose server was the primary when it was asked for, and what the sentinels
        # said about its replicas.
        self._checked: Pipeline | None = None
        self._agreement = Agreement(0, others=True)
        # The replicas that there were after the last write, and how many the next one waits for.
        self._replicas = Replicas()
        self._least = 1
        # Until when the next confirmation may count without a question.
        self._until = 0.0
        # Until when writes do not wait for a replica that lags.
        self._lags_until = 0.0

    def replicas_to_wait_for(self, connection: Connection) -> int:
        """The sentinels are asked after the first write on a connection. So it need not wait for
        the replicas that another server had."""
        return self._least if connection.pipeline is self._checked else 1

    async def is_primary(self, connection: Connection, seconds: float, confirmed: int) -> bool:
        """`seconds` is how long the write has taken, `confirmed` how many replicas have it."""
        pipeline = connection.pipeline
        replicas = await _present(connection)
        if replicas is not None and pipeline is not None and pipeline is self._checked and seconds < SLOW_SECONDS:
            # A replica that has just come may be promoted a moment later, and one that has gone may
            # be the primary already, even if another one has come in its place.
            is_whole = self._replicas <= replicas and self._agreement.replicas <= confirmed == replicas.total()
            if is_whole and time.monotonic() < self._until:
                self._note(replicas, confirmed)
                return True
        self._checked = None
        agreement = await self._questions.agreement(connection)
        if agreement is not None and replicas is not None and connection.pipeline is pipeline:
            self._checked, self._agreement = pipeline, agreement
            now = time.monotonic()
            if confirmed < replicas.total() and seconds >= SLOW_SECONDS:
                self._lags_until = now + LAG_SECONDS
            # A replica that is gone, or lags, does not hold up further writes.
            self._note(replicas, confirmed if now < self._lags_until else replicas.total())
            self._until = now + (RETURN_SECONDS if agreement.others else IDLE_SECONDS)
        return agreement is not None

    def _note(self, replicas: Replicas, least: int) -> None:
        self._replicas, self._least = replicas, max(least, 1)
        if not self._agreement.others:
            self._until = time.monotonic() + IDLE_SECONDS


class _Questions:
    """Asks the sentinels. A question that began before a write was confirmed says nothing about
    that write; writes that wait for the next one share it."""

    def __init__(self, nodes: SentinelNodes, patience: float) -> None:
        self._nodes = nodes
        self._patience = patience
        self._turn = asyncio.Lock()
        self._begun = self._answered = 0
        self._began_at = -math.inf
        self._answer: Agreement | None = None

    async def agreement(self, connection: Connection) -> Agreement | None:
        before = self._begun
        async with self._turn:
            if self._answered > before:
                return self._answer
            await asyncio.sleep(self._began_at + PAUSE_SECONDS - time.monotonic())
            self._begun, self._began_at = self._begun + 1, time.monotonic()
            try:
                self._answer = await in_thread(self._nodes.agree_on, connection.address, self._patience)
            except SERVER_ERRORS:
                self._answer = None
            self._answered = self._begun
            return self._answer


async def _present(connection: Connection) -> Replicas | None:
    """None if the server does not say."""
    try:
        info: bytes = await connection.ask("INFO", "replication")
    except SERVER_ERRORS:
        return None
    return Counter(_PRESENT.findall(info))
