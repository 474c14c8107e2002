"""Pages of finished tasks: the newest first, as far as the history has them, then all others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from docket.errors import Undecodable
from docket.ledger.history import FinishedRun
from docket.ledger.queries import TaskQuery

from .ended_tasks import EndedTask, find_ended
from .server_time import server_now
from .task_filters import TaskFilter
from .task_summaries import TaskSummary, ended_summary, matches, status_summary

if TYPE_CHECKING:
    from docket.docket import Docket

# How long one look into the history takes at most.
_PATIENCE = timedelta(milliseconds=20)
# The record of a task that ended just before is there a little longer.
_SPARE = timedelta(minutes=1)
# Each task needs a request of its own.
_AT_ONCE = 100
# The newest runs of the history, which the list of the other tasks leaves out.
_NEWEST = 1_000


@dataclass(frozen=True, slots=True)
class FinishedPage:
    """Some finished tasks, how many tasks or runs were read for them, and where to go on."""

    tasks: list[TaskSummary]
    examined: int
    within: bytes | None


async def finished_from_history(
    docket: Docket, filter: TaskFilter, query: TaskQuery, within: bytes | None, size: int
) -> FinishedPage:
    """The tasks of the newest runs, while their records are kept. The history has every failure,
    and some of the other runs."""
    if filter.worker is not None or not docket.execution_ttl:
        return FinishedPage([], 0, None)
    runs, examined, cursor = await _newest_keys(docket, filter, within.decode() if within is not None else None, size)
    found = await asyncio.gather(*(_finished(docket, run) for run in runs))
    tasks = [task for task in found if task is not None and matches(filter, task, query)]
    return FinishedPage(tasks, examined, cursor.encode() if cursor is not None else None)


async def _newest_keys(
    docket: Docket, filter: TaskFilter, cursor: str | None, size: int
) -> tuple[list[FinishedRun], int, str | None]:
    """The last run of each task that may match; how many runs were read; and where to go on."""
    begin = await server_now(docket) - docket.execution_ttl - _SPARE
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    last_runs: dict[str, FinishedRun] = {}
    examined = 0
    async with aclosing(docket.ledger.history.newest(cursor, at_once=_AT_ONCE)) as runs:
        async for run in runs:
            # Older records have expired.
            if run.ended_at < begin:
                break
            is_late = examined > 0 and examined % _AT_ONCE == 0 and time.monotonic() > deadline
            if len(last_runs) == size or is_late:
                return list(last_runs.values()), examined, cursor
            examined, cursor = examined + 1, run.id
            if filter.function in (None, run.function) and (filter.key_part or "") in run.key:
                # A task that was retried has several runs.
                last_runs.setdefault(run.key, run)
    return list(last_runs.values()), examined, None


async def _finished(docket: Docket, run: FinishedRun) -> TaskSummary | None:
    """The task, if it ended with this run and its record is there."""
    try:
        summary = status_summary(run.key, await docket.ledger.tasks.get(run.key))
    except Undecodable:
        return None
    is_same = summary is not None and summary.place.is_finished and summary.since == run.ended_at
    return summary if is_same else None


async def finished_from_records(
    docket: Docket, filter: TaskFilter, query: TaskQuery, within: bytes | None, size: int
) -> FinishedPage:
    """All others, in no order. They have no index: this reads keys of the server."""
    states = [place.state for place in filter.places if place.is_finished]
    if not states or filter.worker is not None:
        return FinishedPage([], 0, None)
    listed = await _newest(docket)
    at_once = max(size, _AT_ONCE)
    ended, following = await find_ended(
        docket.ledger, states, within, size, filter.function, filter.key_prefix, calls=1, at_once=at_once
    )
    tasks = [ended_summary(task) for task in _others(ended, listed)]
    return FinishedPage([task for task in tasks if matches(filter, task, query)], len(ended), following)


def _others(ended: Iterable[EndedTask], listed: set[tuple[str, datetime]]) -> list[EndedTask]:
    return [task for task in ended if (task.key, task.completed_at) not in listed]


async def _newest(docket: Docket) -> set[tuple[str, datetime]]:
    found: set[tuple[str, datetime]] = set()
    async with aclosing(docket.ledger.history.newest()) as runs:
        async for run in runs:
            found.add((run.key, run.ended_at))
            if len(found) >= _NEWEST:
                break
    return found
