"""The time of the server, for ranges such as "the last hour": the clock of the machine that asks
may be wrong by days."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from docket.model.times import from_ms

if TYPE_CHECKING:
    from docket.docket import Docket


async def server_now(docket: Docket) -> datetime:
    """The server's time, or the time at which a test holds the clock of tasks."""
    clock = docket.server.clock
    if clock.is_held:
        return clock.now()
    return from_ms(await docket.ledger.server_ms())
