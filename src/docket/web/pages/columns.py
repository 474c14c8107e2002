"""Charts whose columns are minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from docket.inspection.statistics import FunctionStats, Period
from docket.model.histograms import Histogram
from docket.web.charts import HeatMap, Tick, heat_map
from docket.web.charts.heat_map import Moment

# Minutes that charts show if nothing happened before.
LENGTHS = (5, 15, 30)


def shown_minutes(counts: Sequence[float]) -> int:
    """How many of the last minutes a chart shows. A docket that began a moment ago fills a few
    minutes, not a corner of an hour."""
    first = next((i for i, count in enumerate(counts) if count), len(counts))
    return next((length for length in LENGTHS if len(counts) - first <= length), len(counts))


def clock_ticks(moments: Sequence[datetime]) -> tuple[Tick, ...]:
    """A tick every ten minutes; in a short time, every five or every one."""
    columns = len(moments)
    every = 10 if columns > 30 else 5 if columns > 5 else 1
    return tuple(
        Tick((i + 0.5) / columns * 100, f"{when:%H:%M}") for i, when in enumerate(moments) if when.minute % every == 0
    )


def heat_of(
    periods: Sequence[Period], moments: Sequence[datetime], of: Callable[[FunctionStats], Histogram]
) -> HeatMap:
    columns = {when: i for i, when in enumerate(moments)}
    found = [Moment(columns[one.since], one.since, of(one.counts)) for one in periods if one.since in columns]
    return heat_map(found, len(moments))
