"""Decides when `run_until_finished` returns."""

from __future__ import annotations

import logging

from docket.docket import Docket
from docket.errors import TRANSIENT
from docket.ledger.queries import CensusRow

from .parts import Parts

logger: logging.Logger = logging.getLogger("docket.worker")

# While this worker is idle, it asks this often whether the other workers are done, too.
LONGEST_PAUSE = 0.1
# Right after a run it asks sooner.
SHORTEST_PAUSE = 0.002
# A task that this worker cannot read may be for another live worker. After this worker
# has left it this many times, which takes about a minute, no live worker can read it.
TIMES_LEFT_BESIDE_OTHERS = 6


async def wait_until_finished(docket: Docket, parts: Parts) -> None:
    """Returns when no task of the docket is waiting or running, here or elsewhere. Tasks that a
    pause holds do not count, nor do tasks that no live worker can read."""
    runs, pause = parts.runs, SHORTEST_PAUSE
    while True:
        if len(runs):
            pause = SHORTEST_PAUSE
        await runs.wait_idle()
        if await _nothing_is_left(docket, parts) and not len(runs):
            return
        await docket.server.clock.idle(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _stays_held(docket: Docket) -> bool:
    """Whether all unfinished tasks are held by pauses that nobody resumes: they wait for an
    operator, not for a worker."""
    if any(pause.is_resuming for pause in await docket.pauses()):
        return False
    # A pause that was resumed before the last request is no longer listed.
    counts = await docket.ledger.queries.census()
    return counts.unfinished == counts.held


async def _nothing_is_left(docket: Docket, parts: Parts) -> bool:
    try:
        counts = await docket.ledger.queries.census()
        if counts.unknown:
            await parts.unknown_functions.fail_waiting()
        if counts.unfinished == counts.held:
            return counts.unfinished == 0 or await _stays_held(docket)
        return await _only_unreadable_are_left(docket, parts, counts)
    except TRANSIENT:
        # The server cannot be reached: the worker asks again. The services log the reason.
        return False


async def _only_unreadable_are_left(docket: Docket, parts: Parts, counts: CensusRow) -> bool:
    """Whether nothing runs, and this worker could not read any of the tasks that wait: they are of
    a newer release, or sealed with a key that it does not have. They are not failed, because a
    worker that can read them may start."""
    left = parts.deferred_tasks
    if counts.running or left.count < counts.unfinished - counts.held:
        return False
    keys: set[str] = set()
    async for page in docket.ledger.queries.all():
        if any(row.run is not None for row in page):
            return False
        keys.update(row.key for row in page if not row.task.is_held)
    left.forget_except(keys)
    others = any(row.id != parts.registration.id for row in await docket.ledger.fleet.workers())
    if not keys or not left.has_left(keys, TIMES_LEFT_BESIDE_OTHERS if others else 1):
        return False
    logger.error(
        "%s %s left that this worker cannot read, and nothing else: it ends, and they wait for a worker that can",
        f"{len(keys):,}",
        "task is" if len(keys) == 1 else "tasks are",
    )
    return True
