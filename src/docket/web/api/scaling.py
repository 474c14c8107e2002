"""Numbers for an autoscaler. KEDA's scaler `metrics-api` reads one number of a flat JSON object."""

from __future__ import annotations

from dataclasses import dataclass

from docket.docket import Docket
from docket.inspection.census import read_census
from docket.inspection.workers import read_worker_views


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """How much there is to do, and how much room there is for it.

    `waiting` are tasks that a free slot would run now. Those that wait for
    their time, for a limit, for a resume or for another release are not in it,
    since more workers would not help them. `work` is `waiting` and `running`:
    divide it by the slots of a worker to get the number of workers.
    """

    waiting: int
    running: int
    work: int
    # How long the first of the waiting tasks has been ready, in seconds.
    oldest_seconds: float
    workers: int
    # Of all workers that report them.
    slots: int
    free_slots: int


async def read_scaling(docket: Docket) -> Scaling:
    census = await read_census(docket)
    views = await read_worker_views(docket)
    reports = [view.report for view in views if view.report is not None and not view.is_stopping]
    slots = sum(report.slots for report in reports)
    return Scaling(
        waiting=census.ready,
        running=census.running,
        work=census.ready + census.running,
        oldest_seconds=census.oldest_ready_seconds or 0.0,
        workers=census.workers,
        slots=slots,
        free_slots=max(slots - sum(report.runs for report in reports), 0),
    )
