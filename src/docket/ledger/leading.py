"""Elects one worker for something that only some workers of the fleet can do, such as showing gauges where somebody listens."""

from __future__ import annotations

from docket.storage.keys import text_bytes

from .ledger import Ledger


async def lead(ledger: Ledger, duty: str, worker: str, hold_ms: int) -> bool:
    """Whether this worker leads in a duty; it does until it has not asked for `hold_ms`. All others ask with one plain command."""
    key, name = text_bytes(ledger.keys.named("leads", duty)), worker.encode()
    leader = await ledger.server.ask(key, "GET", key)
    if leader is None:
        return bool(await ledger.server.ask(key, "SET", key, name, "NX", "PX", hold_ms))
    if leader == name:
        # Where the time ran out just now, another may have taken over: then this does nothing, and the next GET tells.
        await ledger.server.ask(key, "PEXPIRE", key, hold_ms)
    return leader == name
