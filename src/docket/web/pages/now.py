"""The start page: rates, times, slots, and what needs attention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from docket.docket import Docket
from docket.inspection.census import Census
from docket.inspection.rules import read_rules
from docket.inspection.statistics import FlowPoint, FunctionStats, failing, read_flow, read_statistics
from docket.inspection.tasks import find_oldest
from docket.inspection.workers import RunningTask, WorkerView, read_running, read_worker_views
from docket.web.charts import Bars, HeatMap, Series, Tick, mirrored
from docket.web.page_request import PageRequest, WebPage

from .formats import LENGTHS, Shared, clock_ticks, heat_of, shown_minutes

HOUR = timedelta(hours=1)
RECENT = timedelta(minutes=5)
OLDEST, FAILING = 8, 6
# Two seconds per column of the live chart.
COLUMNS, STEP_SECONDS = 150, 2
# The most slots that are drawn for a worker, and the most workers.
MOST_SLOTS, MOST_WORKERS = 400, 200


@dataclass(frozen=True, slots=True)
class SlotUse:
    """The slots of a worker: its runs, and how many slots are free."""

    worker: WorkerView
    runs: Sequence[RunningTask]
    free: int
    hidden: int

    @property
    def total(self) -> int:
        return len(self.runs) + self.free + self.hidden

    @property
    def crowd(self) -> str:
        """How small the slots are drawn."""
        return "crowd" if self.total > 150 else "many" if self.total > 24 else ""


@dataclass(frozen=True, slots=True)
class Hour:
    """The last hour, which changes by the minute."""

    minutes: int
    waiting: HeatMap
    running: HeatMap
    flow: Bars
    ticks: tuple[Tick, ...]
    failing: tuple[FunctionStats, ...]
    total: FunctionStats

    @property
    def words(self) -> str:
        return "the last hour" if self.minutes > LENGTHS[-1] else f"the last {self.minutes} minutes"


hours: Shared[Hour] = Shared(timedelta(seconds=5))


async def answer(page_request: PageRequest) -> Response:
    return page_request.render("now.html", **await _context(page_request))


async def live(page_request: PageRequest) -> str:
    return page_request.fragment("now_parts.html", **await _context(page_request))


async def _context(page_request: PageRequest) -> dict[str, Any]:
    docket = page_request.docket
    census = await page_request.reader.read()
    hour, workers, running, oldest, overview, rules = await asyncio.gather(
        hours.get(docket, _read_hour),
        read_worker_views(docket),
        read_running(docket),
        find_oldest(docket, OLDEST),
        docket.dead.overview(),
        read_rules(docket),
    )
    kinds = sorted(overview.kinds, key=lambda kind: kind.last_at, reverse=True)[:FAILING]
    fleet = [_slots(worker, running.of(worker.id)) for worker in workers[:MOST_WORKERS]]
    return {
        "census": census,
        "rates": census.rates,
        "flow": _live_chart(tuple(page_request.reader.recent)),
        "hour": hour,
        "fleet": fleet,
        "other_workers": max(len(workers) - MOST_WORKERS, 0),
        "slots": sum(one.total for one in fleet) if all(one.worker.report for one in fleet) else None,
        "running_functions": sorted({run.function for run in running.runs}),
        "oldest": oldest,
        "kinds": kinds,
        "letters": overview,
        "unknown": await docket.ledger.tasks.unknown_functions() if census.unknown else [],
        "rules": rules,
        "now": census.taken,
        "live_ticks": _live_ticks(),
    }


def _slots(worker: WorkerView, runs: Sequence[RunningTask]) -> SlotUse:
    slots = worker.report.slots if worker.report is not None else len(runs)
    shown = runs[:MOST_SLOTS]
    free = max(min(slots, MOST_SLOTS) - len(runs), 0)
    return SlotUse(worker, shown, free, max(slots, len(runs)) - len(shown) - free)


# Charts


def _live_chart(recent: Sequence[Census]) -> Bars:
    """The last five minutes: in above, out below."""
    if not recent:
        return mirrored((Series("in", ()),), (Series("out", ()),), COLUMNS)
    last = recent[-1].taken
    sums = [[0.0, 0.0, 0.0] for _ in range(COLUMNS)]
    first = COLUMNS
    for census in recent:
        column = COLUMNS - 1 - int((last - census.taken).total_seconds() // STEP_SECONDS)
        if census.rates is None or column < 0:
            continue
        first = min(first, column)
        rates = census.rates
        share = rates.seconds / STEP_SECONDS
        for i, value in enumerate((rates.added, rates.ended - rates.failed, rates.failed)):
            sums[column][i] += value * share
    words = [
        f"{last - timedelta(seconds=STEP_SECONDS * (COLUMNS - 1 - i)):%H:%M:%S} UTC: "
        f"{sums[i][0]:.1f}/s in, {sums[i][1] + sums[i][2]:.1f}/s out, {sums[i][2]:.1f}/s went wrong"
        for i in range(first, COLUMNS)
    ]
    added, good, bad = ([row[i] for row in sums] for i in range(3))
    return mirrored((Series("in", added),), (Series("bad", bad), Series("out", good)), COLUMNS, words)


def _live_ticks() -> tuple[Tick, ...]:
    return tuple(Tick(at / 5 * 100, f"−{5 - at} min" if at < 5 else "now") for at in range(6))


async def _read_hour(docket: Docket) -> Hour:
    stats, points = await asyncio.gather(read_statistics(docket, None, HOUR, None), read_flow(docket, length=HOUR))
    points = points[-shown_minutes([point.ended or point.added or 0 for point in points]) :]
    moments = [point.since for point in points]
    return Hour(
        minutes=len(points),
        waiting=heat_of(stats.periods, moments, lambda counts: counts.waiting_time),
        running=heat_of(stats.periods, moments, lambda counts: counts.run_time),
        flow=_flow(points),
        ticks=clock_ticks(moments),
        failing=tuple(failing(stats)[:FAILING]),
        total=stats.total,
    )


def _flow(points: Sequence[FlowPoint]) -> Bars:
    """By the minute. Minutes without a sample of a worker have no count of what came in."""
    added = [float(point.added or 0) for point in points]
    good = [float(point.ended - point.failed) for point in points]
    bad = [float(point.failed) for point in points]
    words = [
        f"{point.since:%H:%M} UTC: {'?' if point.added is None else f'{point.added:,.0f}'} in, "
        f"{point.ended:,} out, {point.failed:,} went wrong"
        for point in points
    ]
    return mirrored((Series("in", added),), (Series("bad", bad), Series("out", good)), len(points), words)


PAGE = WebPage("now", answer, "Now", live)
