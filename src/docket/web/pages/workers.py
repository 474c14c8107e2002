"""The workers: how they are, and what they run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from docket.inspection.workers import RunningTask, WorkerView, read_running, read_worker_views
from docket.web.page_request import PageRequest, WebPage

# The most runs that are listed for one worker.
LISTED = 25


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: WorkerView
    runs: Sequence[RunningTask]

    @property
    def shown(self) -> Sequence[RunningTask]:
        return self.runs[:LISTED]


async def answer(page_request: PageRequest) -> Response:
    workers, running = await asyncio.gather(read_worker_views(page_request.docket), read_running(page_request.docket))
    rows = [WorkerRow(worker, running.of(worker.id)) for worker in workers]
    versions = {worker.report.version for worker in workers if worker.report is not None}
    return page_request.render("workers.html", rows=rows, versions=sorted(versions), now=page_request.docket.now())


PAGE = WebPage("workers", answer, "Workers")
