"""The time of the server, for ranges such as "the last hour": the clock of the machine that asks
may be wrong by days."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from docket.model.times import from_ms
from docket.storage.keys import text_bytes

if TYPE_CHECKING:
    from docket.docket import Docket


async def server_now(docket: Docket) -> datetime:
    """The server's time, or the time at which a test holds the clock of tasks."""
    clock = docket.server.clock
    if clock.is_held:
        return clock.now()
    seconds, microseconds = await docket.server.ask(text_bytes(docket.ledger.keys.offers), "TIME")
    return from_ms(int(seconds) * 1000 + int(microseconds) / 1000)
