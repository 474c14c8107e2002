"""The next 24 hours: cron and perpetual tasks, and what is scheduled."""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.inspection.filters import TaskFilter
from docket.inspection.schedule import Upcoming, read_upcoming
from docket.inspection.tasks import find_page
from docket.model.places import Place
from docket.web.charts import Strip, hue, strip
from docket.web.page_request import PageRequest, WebPage

SIZE = 25
# Functions with a colour of their own; the others share one.
NAMED = 6


async def answer(page_request: PageRequest) -> Response:
    docket = page_request.docket
    scheduled = TaskFilter(places=frozenset((Place.SCHEDULED,)))
    try:
        upcoming, page = await asyncio.gather(
            read_upcoming(docket), find_page(docket, scheduled, size=SIZE, cursor=page_request.query.get("after"))
        )
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    chart, legend = _strip(upcoming)
    return page_request.render(
        "schedule.html", upcoming=upcoming, found=page, chart=chart, legend=legend, now=upcoming.since
    )


def _strip(upcoming: Upcoming) -> tuple[Strip, list[tuple[str, int]]]:
    """The strip, and the functions in it with their numbers, the most frequent first."""
    totals: Counter[str] = Counter()
    for bucket in upcoming.buckets:
        totals.update(bucket.functions)
    named = [name for name, _ in totals.most_common(NAMED)]
    # Two names may have one colour: their bars are then one above the other.
    series = {f"fill-hue hue-{hue(name)}": [0] * len(upcoming.buckets) for name in named}
    series["fill-other"] = [0] * len(upcoming.buckets)
    for i, bucket in enumerate(upcoming.buckets):
        for name, count in bucket.functions.items():
            series[f"fill-hue hue-{hue(name)}" if name in named else "fill-other"][i] += count
    first = upcoming.buckets[0] if upcoming.buckets else None
    since = first.since if first else upcoming.since
    step = first.until - first.since if first else upcoming.until - upcoming.since
    others = sum(totals.values()) - sum(totals[name] for name in named)
    legend = [(name, totals[name]) for name in named]
    if others:
        legend.append(("", others))
    return strip(since, step, series, max(len(upcoming.buckets), 1)), legend


PAGE = WebPage("schedule", answer, "Schedule")
