"""Decides when `run_until_finished` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docket.errors import TRANSIENT

if TYPE_CHECKING:
    from docket.docket import Docket

    from .staff import Staff

# While this worker is idle, it asks this often whether the other workers are done, too.
LONGEST_PAUSE = 0.1
# Right after a run it asks sooner.
SHORTEST_PAUSE = 0.002


async def wait_until_finished(docket: Docket, staff: Staff) -> None:
    """Returns when no task of the docket is waiting or running, here or elsewhere. Tasks that a
    pause holds do not count."""
    runs, pause = staff.runs, SHORTEST_PAUSE
    while True:
        if len(runs):
            pause = SHORTEST_PAUSE
        await runs.wait_idle()
        if await _nothing_is_left(docket, staff) and not len(runs):
            return
        await docket.server.clock.idle(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _stays_held(docket: Docket) -> bool:
    """Whether all unfinished tasks are held by pauses that nobody resumes: they wait for an
    operator, not for a worker."""
    if any(pause.is_resuming for pause in await docket.pauses()):
        return False
    # A pause that was resumed before the last request is no longer listed.
    counts = await docket.ledger.count()
    return counts.unfinished == counts.held


async def _nothing_is_left(docket: Docket, staff: Staff) -> bool:
    try:
        counts = await docket.ledger.count()
        if counts.unknown:
            await staff.unknown_functions.fail_waiting()
        return counts.unfinished == 0 or (counts.unfinished == counts.held and await _stays_held(docket))
    except TRANSIENT:
        # The server cannot be reached: the worker asks again. The services log the reason.
        return False
