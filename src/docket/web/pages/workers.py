"""The workers: how they are, and what they run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from docket.inspection.workers import RunningTask, WorkerView, read_running, read_worker_views
from docket.web.page import Page
from docket.web.visit import Visit

# The most runs that are listed for one worker.
LISTED = 25


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: WorkerView
    runs: Sequence[RunningTask]

    @property
    def shown(self) -> Sequence[RunningTask]:
        return self.runs[:LISTED]


async def answer(visit: Visit) -> Response:
    workers, running = await asyncio.gather(read_worker_views(visit.docket), read_running(visit.docket))
    rows = [WorkerRow(worker, running.of(worker.id)) for worker in workers]
    versions = {worker.report.version for worker in workers if worker.report is not None}
    return visit.render("workers.html", rows=rows, versions=sorted(versions), now=visit.docket.now())


PAGE = Page("workers", answer, "Workers")
