"""Which runs have finished lately: every failure, and samples of the others."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from docket.execution.context import DocketContext
from docket.ledger.history import FinishedRun
from docket.model.states import FAILURE_KINDS, EndingKind
from docket.model.times import FIRST, LAST, check_type, from_ms, to_ms

# How many runs are answered by default.
LIMIT = 100
# A page whose filter matches few runs ends after this time, with the runs so far.
PATIENCE = timedelta(milliseconds=60)
_READ_AT_ONCE = 100
Endings = EndingKind | str | Collection[EndingKind | str]


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPage:
    """Runs that finished lately, the newest first, and the cursor of the next page; None at the
    end. `examined` runs were read for this page. A page may have few runs, or none, and a cursor:
    the filter matches few of the runs that were read in the time of one page."""

    runs: tuple[FinishedRun, ...]
    cursor: str | None
    examined: int


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which runs are wanted."""

    function: str | None
    key: str | None
    kinds: frozenset[EndingKind] | None
    begin: datetime
    end: datetime

    @property
    def only_failures(self) -> bool:
        return self.kinds is not None and self.kinds <= FAILURE_KINDS

    def matches(self, run: FinishedRun) -> bool:
        return (
            self.begin <= run.ended_at <= self.end
            and (self.function is None or run.function == self.function)
            and (self.key is None or run.key == self.key)
            and (self.kinds is None or run.ending in self.kinds)
        )


async def _filter(
    docket: DocketContext,
    function: str | None,
    key: str | None,
    endings: Endings | None,
    since: datetime | timedelta | None,
    until: datetime | None,
) -> _Filter:
    """Raises ValueError or TypeError for a filter that is not valid."""
    kinds = None if endings is None else _kinds(endings)
    return _Filter(function, key, kinds, *await _range(docket, since, until))


async def read_history(
    docket: DocketContext,
    function: str | None,
    *,
    key: str | None,
    endings: Endings | None,
    since: datetime | timedelta | None,
    until: datetime | None,
    before: str | None,
    limit: int,
) -> list[FinishedRun]:
    """The finished runs that match, newest first. Raises ValueError or TypeError for a filter that
    is not valid."""
    if isinstance(limit, bool) or not isinstance(limit, int):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise TypeError(f"limit={limit!r} is not a whole number")
    if limit < 1:
        raise ValueError(f"limit={limit}: it is 1 at least")
    wanted = await _filter(docket, function, key, endings, since, until)
    found: list[FinishedRun] = []
    async with aclosing(docket.ledger.history.newest(before, failures=wanted.only_failures)) as runs:
        async for run in runs:
            if wanted.matches(run):
                found.append(run)
                if len(found) == limit:
                    break
    return found


async def read_history_page(
    docket: DocketContext,
    function: str | None = None,
    *,
    key: str | None = None,
    endings: Endings | None = None,
    since: datetime | timedelta | None = None,
    until: datetime | None = None,
    cursor: str | None = None,
    size: int = 50,
    patience: timedelta = PATIENCE,
) -> HistoryPage:
    """A page of the finished runs that match, newest first. It reads for about `patience` at most.
    Raises ValueError for a filter or a cursor that is not valid."""
    if not 1 <= size <= 500:
        raise ValueError(f"size={size}: it must be from 1 to 500")
    wanted = await _filter(docket, function, key, endings, since, until)
    deadline = time.monotonic() + patience.total_seconds()
    found: list[FinishedRun] = []
    examined, last = 0, cursor
    source = docket.ledger.history.newest(cursor, failures=wanted.only_failures, at_once=_READ_AT_ONCE)
    async with aclosing(source) as runs:
        async for run in runs:
            is_late = examined > 0 and examined % _READ_AT_ONCE == 0 and time.monotonic() > deadline
            if len(found) == size or is_late:
                return HistoryPage(runs=tuple(found), cursor=last, examined=examined)
            examined, last = examined + 1, run.id
            if wanted.matches(run):
                found.append(run)
    return HistoryPage(runs=tuple(found), cursor=None, examined=examined)


def _kinds(endings: Endings) -> frozenset[EndingKind]:
    wanted = [endings] if isinstance(endings, str) else list(endings)
    known = {kind.value: kind for kind in EndingKind}
    for kind in wanted:
        if kind not in known:
            raise ValueError(f"endings={kind!r} is not an ending kind; these are: {', '.join(known)}")
    return frozenset(known[kind] for kind in wanted)


async def _range(
    docket: DocketContext, since: datetime | timedelta | None, until: datetime | None
) -> tuple[datetime, datetime]:
    check_type("since", since, (datetime, timedelta))
    check_type("until", until, (datetime,))
    end = LAST if until is None else from_ms(to_ms(until))
    if since is None:
        return FIRST, end
    if isinstance(since, timedelta):
        try:
            begin = (await docket.ledger.now() if until is None else end) - since
        except OverflowError:
            begin = FIRST
    else:
        begin = from_ms(to_ms(since))
    if begin > end:
        raise ValueError(f"since={since!r} is after until={until!r}")
    return begin, end
