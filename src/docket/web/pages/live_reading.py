"""The counts that the pages share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from weakref import WeakKeyDictionary

from docket.docket import Docket
from docket.inspection.census import Census, CensusTaker
from docket.web.visit import Visit

from .shared import Shared

_takers: WeakKeyDictionary[Docket, CensusTaker] = WeakKeyDictionary()
_censuses: Shared[Census] = Shared(timedelta(seconds=0.9))


@dataclass(frozen=True, slots=True)
class LiveCounts:
    census: Census
    recent: Sequence[Census]


async def live_state(visit: Visit) -> LiveCounts:
    docket = visit.docket
    taker = _takers.get(docket)
    if taker is None:
        taker = _takers[docket] = CensusTaker(docket)
    await _censuses.get(docket, lambda _: taker.take())
    return LiveCounts(taker.recent[-1], tuple(taker.recent))
