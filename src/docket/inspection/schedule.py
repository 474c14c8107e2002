"""The tasks that are due next, and the chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from docket.execution.context import DocketContext
from docket.ledger.queries import (
    BucketRow,
    ChainRow,
    FoundTask,
    Source,
    TaskQuery,
)
from docket.model.times import duration_ms, from_ms
from docket.storage.records import TaskRecord

from .functions import as_declaration, following_run

DEFAULT_LENGTH, DEFAULT_BUCKET = timedelta(hours=24), timedelta(minutes=15)
MOST_BUCKETS = 400
# Tasks of the schedule, and runs, that are read to find chains.
_MOST_READ = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class UpcomingBucket:
    """The tasks that are due in a part of the time. `count` is exact; if `is_exact` is False, the
    shares of the functions were estimated from some of its tasks."""

    since: datetime
    until: datetime
    count: int
    functions: Mapping[str, int]
    is_exact: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainView:
    """A task that runs again and again. An automatic one is added by workers, and its key is the
    name of the function; a program adds the others, with any key.

    `next_run` is None while it runs, and if its chain has ended. `expression` is that of a cron
    task; `every` the interval of another one. `skip_to` is the run that `docket.skip` leads to.
    """

    key: str
    function: str
    next_run: datetime | None
    skip_to: datetime | None
    is_running: bool
    is_automatic: bool
    # Since when its chain is cancelled, or buried (docket.dead).
    cancelled_at: datetime | None
    buried_at: datetime | None
    expression: str | None
    timezone: str | None
    every: timedelta | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Upcoming:
    """The schedule from `since`, by the server's clock. `overdue` tasks are due and not staged yet;
    `later` ones are due after the last bucket."""

    since: datetime
    until: datetime
    buckets: tuple[UpcomingBucket, ...]
    overdue: int
    later: int
    chains: tuple[ChainView, ...]
    # False if not all scheduled and running tasks were read to find chains that are not automatic.
    is_complete: bool


async def read_upcoming(
    docket: DocketContext, *, length: timedelta = DEFAULT_LENGTH, bucket: timedelta = DEFAULT_BUCKET
) -> Upcoming:
    """The schedule of the next `length` in buckets, and all chains. The time that it takes does not
    grow with the number of scheduled tasks."""
    bucket_ms, length_ms = duration_ms(bucket), duration_ms(length)
    if bucket_ms < 1000 or not bucket_ms <= length_ms <= bucket_ms * MOST_BUCKETS:
        raise ValueError(f"length={length}, bucket={bucket}: there must be from 1 to {MOST_BUCKETS} buckets")
    counts = await docket.ledger.queries.census()
    # Buckets begin at whole hours and minutes, so that two reads have the same ones.
    begin_ms = counts.server_ms // bucket_ms * bucket_ms
    rows = await docket.ledger.queries.upcoming(begin_ms, bucket_ms, length_ms // bucket_ms)
    overdue = await docket.ledger.queries.upcoming(0, begin_ms, 1)
    found = [row async for row in docket.ledger.queries.chains() if row.task or row.workers or row.buried]
    others, is_complete = await _find_others(docket, {row.name for row in found})
    names = dict.fromkeys([_function_of(row) for row in found] + [task.task.function_name for task in others])
    declared = await docket.ledger.fleet.declarations(list(names))
    now = from_ms(counts.server_ms)
    chains = [_chain(row, declared.get(_function_of(row), {}), now) for row in found]
    chains += [
        _chain_view(task.key, task.task, declaration, now, is_running=task.run is not None, is_automatic=False)
        for task in others
        if _repeats(declaration := declared.get(task.task.function_name, {}))
    ]
    buckets = tuple(_bucket(begin_ms + i * bucket_ms, bucket_ms, row) for i, row in enumerate(rows))
    before = overdue[0].count
    return Upcoming(
        since=from_ms(counts.server_ms),
        until=from_ms(begin_ms + len(rows) * bucket_ms),
        buckets=buckets,
        overdue=before,
        later=max(counts.scheduled - before - sum(row.count for row in rows), 0),
        chains=tuple(sorted(chains, key=lambda chain: (chain.next_run is None, chain.next_run, chain.key))),
        is_complete=is_complete,
    )


def _bucket(begin_ms: float, bucket_ms: float, row: BucketRow) -> UpcomingBucket:
    is_exact = row.read == row.count
    scale = row.count / row.read if row.read else 0.0
    functions = {name: number if is_exact else round(number * scale) for name, number in row.functions.items()}
    return UpcomingBucket(
        since=from_ms(begin_ms),
        until=from_ms(begin_ms + bucket_ms),
        count=row.count,
        functions=dict(sorted(functions.items(), key=lambda item: (-item[1], item[0]))),
        is_exact=is_exact,
    )


def _function_of(row: ChainRow) -> str:
    return row.task.function_name if row.task is not None else row.name


def _chain(row: ChainRow, declared: dict[str, Any], now: datetime) -> ChainView:
    view = _chain_view(row.name, row.task, declared, now, is_running=row.run is not None, is_automatic=True)
    return replace(
        view,
        cancelled_at=from_ms(row.cancelled_ms) if row.cancelled_ms is not None else None,
        buried_at=from_ms(row.buried.since_ms) if row.buried is not None else None,
    )


def _chain_view(
    key: str, task: TaskRecord | None, declared: dict[str, Any], now: datetime, *, is_running: bool, is_automatic: bool
) -> ChainView:
    next_run = from_ms(task.due_ms) if task is not None and not is_running else None
    declaration = as_declaration(declared)
    return ChainView(
        key=key,
        function=task.function_name if task is not None else key,
        next_run=next_run,
        skip_to=following_run(declared, next_run, now) if next_run is not None else None,
        is_running=is_running,
        is_automatic=is_automatic,
        cancelled_at=None,
        buried_at=None,
        expression=declaration.cron,
        timezone=declaration.timezone,
        every=declaration.every,
    )


async def _find_others(docket: DocketContext, known: set[str]) -> tuple[list[FoundTask], bool]:
    """Tasks that may be chains which a program has added: of those that are due next, and of those
    that run. There is no index of them."""
    found: list[FoundTask] = []
    is_complete = True
    for source in (Source.RUNNING, Source.SCHEDULED):
        page = await docket.ledger.queries.find(source, TaskQuery(), None, _MOST_READ, _MOST_READ)
        found += [task for task in page.tasks if task.key not in known]
        is_complete = is_complete and page.cursor is None
    return found, is_complete


def _repeats(declared: dict[str, Any]) -> bool:
    declaration = as_declaration(declared)
    return declaration.cron is not None or declaration.every is not None
