"""Concurrency limits, and the windows of rate limits, cooldowns and debounces."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta

from docket.execution.context import DocketContext
from docket.ledger.limits import LimitRow, WindowRow
from docket.model.times import from_ms

from .filters import is_scan_cursor
from .reasons import SlotHolder
from .why import limit_names
from .workers import RunningTask, read_running

_NAMED_HOLDERS = 20
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


async def read_limits(docket: DocketContext, *, cursor: str | None = None, size: int = 100) -> LimitPage:
    """A page of the limits in use. Raises ValueError for a cursor that is not one."""
    if not 1 <= size <= 500:
        raise ValueError(f"size={size}: it must be from 1 to 500")
    if cursor is not None and not is_scan_cursor(cursor):
        raise ValueError(f"{cursor!r} is not a cursor: use the one of the page before")
    page = await docket.ledger.limits.in_use(cursor.encode() if cursor else None, size, _NAMED_HOLDERS)
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


_NAMED_TASKS = 20
# More are not noted (docs/design/limits.md).
_MOST = 1_000


class WindowKind(enum.StrEnum):
    """Which behaviour it is."""

    RATE = "rate"
    COOLDOWN = "cooldown"
    DEBOUNCE = "debounce"


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowRun:
    """A run that counts in the window, and when it began."""

    key: str
    began: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowWaiter:
    """A task that a limit delays, and until when."""

    key: str
    function: str
    until: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowView:
    """A rate limit of `most` runs in `per`; a cooldown that is open until `ends`; or a debounce
    whose task waits until none has followed for `per`. `parameter` or `function` is what it counts.
    The newest 20 runs of a rate limit are named, and the 20 tasks that are next."""

    kind: WindowKind
    name: str
    parameter: str | None
    function: str | None
    most: int
    per: timedelta
    ends: datetime
    in_use: int
    waiting: int
    runs: tuple[WindowRun, ...]
    waiters: tuple[WindowWaiter, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowPage:
    """Some limits, and the cursor of the next page; None at the end. `total` is about the number of
    all that are in effect; of very many, 1,000 are listed."""

    windows: tuple[WindowView, ...]
    cursor: str | None
    total: int


async def read_windows(docket: DocketContext, *, cursor: str | None = None, size: int = 50) -> WindowPage:
    """A page of the limits in effect. Raises ValueError for a cursor that is not one."""
    if not 1 <= size <= 500:
        raise ValueError(f"size={size}: it must be from 1 to 500")
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and int(cursor) <= _MOST):
        raise ValueError(f"{cursor!r} is not a cursor: use the one of the page before")
    before = int(cursor or 0)
    page = await docket.ledger.limits.windows(before, size, _NAMED_TASKS)
    windows = tuple(_window(row) for row in page.rows if row.kind in set(WindowKind))
    following = before + size
    return WindowPage(windows=windows, cursor=str(following) if following < page.total else None, total=page.total)


def _window(row: WindowRow) -> WindowView:
    name, parameter, function = limit_names(row.name)
    return WindowView(
        kind=WindowKind(row.kind),
        name=name,
        parameter=parameter,
        function=function,
        most=row.most,
        per=timedelta(milliseconds=row.ms),
        ends=from_ms(row.ends_ms),
        in_use=row.in_use,
        waiting=row.waiting,
        runs=tuple(WindowRun(key=key, began=from_ms(at)) for key, at in row.runs),
        waiters=tuple(WindowWaiter(key=key, function=task, until=from_ms(at)) for key, at, task in row.waiters),
    )
