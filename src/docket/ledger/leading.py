"""Which worker does what one worker of the fleet should do for all."""

from __future__ import annotations

from docket.storage.keys import text_bytes

from .ledger import Ledger


async def lead(ledger: Ledger, duty: str, worker: str, hold_ms: int) -> bool:
    """Whether this worker leads in a duty; it does until it has not asked for `hold_ms`."""
    key = text_bytes(ledger.keys.named("leads", duty))
    return bool(await ledger.server.run("lead", [key], worker, str(hold_ms)))
