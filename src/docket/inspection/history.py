"""Which runs have finished lately: every failure, and samples of the others."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from docket.ledger.history import FAILURE_KINDS, FinishedRun, newest_runs
from docket.model.ending_kinds import EndingKind
from docket.model.times import FIRST, LAST, check_type, from_ms, to_ms

from .server_time import server_now

if TYPE_CHECKING:
    from docket.docket import Docket

# How many runs are answered by default.
LIMIT = 100
Endings = EndingKind | str | Collection[EndingKind | str]


async def read_history(
    docket: Docket,
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
    kinds = None if endings is None else _kinds(endings)
    begin, end = await _range(docket, since, until)
    found: list[FinishedRun] = []
    only_failures = kinds is not None and kinds <= FAILURE_KINDS
    async with aclosing(newest_runs(docket.ledger, before, failures=only_failures)) as runs:
        async for run in runs:
            if (
                begin <= run.ended_at <= end
                and (function is None or run.function == function)
                and (key is None or run.key == key)
                and (kinds is None or run.ending in kinds)
            ):
                found.append(run)
                if len(found) == limit:
                    break
    return found


def _kinds(endings: Endings) -> frozenset[EndingKind]:
    wanted = [endings] if isinstance(endings, str) else list(endings)
    known = {kind.value: kind for kind in EndingKind}
    for kind in wanted:
        if kind not in known:
            raise ValueError(f"endings={kind!r} is not an ending kind; these are: {', '.join(known)}")
    return frozenset(known[kind] for kind in wanted)


async def _range(
    docket: Docket, since: datetime | timedelta | None, until: datetime | None
) -> tuple[datetime, datetime]:
    check_type("since", since, (datetime, timedelta))
    check_type("until", until, (datetime,))
    end = LAST if until is None else from_ms(to_ms(until))
    if since is None:
        return FIRST, end
    if isinstance(since, timedelta):
        try:
            begin = (await server_now(docket) if until is None else end) - since
        except OverflowError:
            begin = FIRST
    else:
        begin = from_ms(to_ms(since))
    if begin > end:
        raise ValueError(f"since={since!r} is after until={until!r}")
    return begin, end
