"""The concurrency limits that are in use: who holds their slots, and who waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from docket.ledger.limits import LimitRow
from docket.model.times import from_ms

from .cursor_texts import is_scan_cursor
from .limit_reasons import limit_names
from .reasons import SlotHolder
from .worker_views import RunningTask, read_running

if TYPE_CHECKING:
    from docket.docket import Docket

NAMED = 20
# Runs that are read to name the holders.
_MOST_RUNS = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotWaiter:
    """A task that waits for a slot of a limit."""

    key: str
    function: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitView:
    """A concurrency limit in use. `parameter` or `function` is what it counts. At most 20 holders
    and 20 waiters are named, those that waited longest first."""

    name: str
    parameter: str | None
    function: str | None
    most: int
    in_use: int
    waiting: int
    # Since when the first waiter has waited.
    waiting_since: datetime | None
    holders: tuple[SlotHolder, ...]
    waiters: tuple[SlotWaiter, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitPage:
    """Some limits, those with the most waiters first, and the cursor of the next page; None at the
    end. `total` is the number of all limits in use."""

    limits: tuple[LimitView, ...]
    cursor: str | None
    total: int


async def read_limits(docket: Docket, *, cursor: str | None = None, size: int = 100) -> LimitPage:
    """A page of the limits in use. Raises ValueError for a cursor that is not one."""
    if not 1 <= size <= 500:
        raise ValueError(f"size={size}: it must be from 1 to 500")
    if cursor is not None and not is_scan_cursor(cursor):
        raise ValueError(f"{cursor!r} is not a cursor: use the one of the page before")
    page = await docket.ledger.limits.in_use(cursor.encode() if cursor else None, size, NAMED)
    runs: dict[int, RunningTask] = {}
    if any(row.epochs for row in page.rows):
        runs = {run.epoch: run for run in (await read_running(docket, most=_MOST_RUNS)).runs}
    limits = sorted((_limit(row, runs) for row in page.rows), key=lambda one: (-one.waiting, -one.in_use, one.name))
    return LimitPage(limits=tuple(limits), cursor=page.cursor.decode() if page.cursor else None, total=page.total)


def _limit(row: LimitRow, runs: dict[int, RunningTask]) -> LimitView:
    name, parameter, function = limit_names(row.name)
    holders = [_holder(epoch, runs.get(epoch)) for epoch in row.epochs]
    holders += [SlotHolder(key=key, worker=None, since=None) for key in sorted(row.reserved_for)]
    waiters = tuple(
        SlotWaiter(key=waiter.key, function=waiter.function, since=from_ms(waiter.since_ms)) for waiter in row.waiters
    )
    return LimitView(
        name=name,
        parameter=parameter,
        function=function,
        most=row.most,
        in_use=row.in_use,
        waiting=row.waiting,
        waiting_since=waiters[0].since if waiters else None,
        holders=tuple(holders),
        waiters=waiters,
    )


def _holder(epoch: int, run: RunningTask | None) -> SlotHolder:
    """An epoch is the time of the claim, in the server's microseconds."""
    key, worker = (run.key, run.worker) if run is not None else (None, None)
    return SlotHolder(key=key, worker=worker, since=from_ms(epoch / 1000))
