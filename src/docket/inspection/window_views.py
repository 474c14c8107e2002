"""The rate limits, cooldowns and debounces that are in effect: who used them, and who waits."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from docket.ledger.limits import WindowRow
from docket.model.times import from_ms

from .limit_reasons import limit_names

if TYPE_CHECKING:
    from docket.docket import Docket

NAMED = 20
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


async def read_windows(docket: Docket, *, cursor: str | None = None, size: int = 50) -> WindowPage:
    """A page of the limits in effect. Raises ValueError for a cursor that is not one."""
    if not 1 <= size <= 500:
        raise ValueError(f"size={size}: it must be from 1 to 500")
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and int(cursor) <= _MOST):
        raise ValueError(f"{cursor!r} is not a cursor: use the one of the page before")
    before = int(cursor or 0)
    page = await docket.ledger.limits.windows(before, size, NAMED)
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
