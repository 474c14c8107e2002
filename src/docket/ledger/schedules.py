"""The schedule by time and function, and the automatic tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from docket.storage.keys import bytes_text
from docket.storage.records import RunRecord, TaskRecord, read_run, read_task

from .ledger import Ledger
from .letters import BuriedChain, read_buried_chain

# The most tasks that one script call reads, and those of one bucket.
_READ_AT_ONCE, _OF_A_BUCKET = 240, 20
_CHAINS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class BucketRow:
    """The number of tasks that are due in a part of the time, and the functions of those that were
    read."""

    count: int
    read: int
    functions: dict[str, int]


@dataclass(frozen=True, slots=True)
class ChainRow:
    """An automatic task. `task` is None if its chain has ended."""

    name: str
    task: TaskRecord | None
    run: RunRecord | None
    cancelled_ms: float | None
    buried: BuriedChain | None
    workers: int


async def count_upcoming(ledger: Ledger, begin_ms: float, bucket_ms: float, buckets: int) -> list[BucketRow]:
    """The scheduled tasks by time, from `begin_ms`."""
    found: list[BucketRow] = []
    at_once = _READ_AT_ONCE // _OF_A_BUCKET
    for first in range(0, buckets, at_once):
        begin, number = begin_ms + first * bucket_ms, min(at_once, buckets - first)
        reply = await ledger.ask("upcoming", (begin, bucket_ms, number, _OF_A_BUCKET))
        for i in range(0, len(reply), 3):
            names = reply[i + 2]
            functions = {bytes_text(names[n]): names[n + 1] for n in range(0, len(names), 2)}
            found.append(BucketRow(reply[i], reply[i + 1], functions))
    return found


async def list_chains(ledger: Ledger) -> AsyncIterator[ChainRow]:
    """All automatic tasks, read page by page."""
    cursor = b"0"
    while True:
        cursor, *found = await ledger.ask("list_chains", (cursor, _CHAINS_AT_ONCE))
        for i in range(0, len(found), 6):
            name, task, run, cancelled, buried, workers = found[i : i + 6]
            text = bytes_text(name)
            yield ChainRow(
                text,
                read_task(task) if task else None,
                read_run(run) if run else None,
                float(cancelled) if cancelled else None,
                read_buried_chain(text, buried) if buried else None,
                workers,
            )
        if cursor == b"0":
            return
