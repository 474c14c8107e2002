"""A worker: `python -m chaos.worker_process '<settings as JSON>'`."""

from __future__ import annotations

import json
import sys

from .wrong_clock import shift_clock

if __name__ == "__main__" and (_seconds := json.loads(sys.argv[1])["clock_seconds"]):
    # Before docket is imported: it must not see the right clock even once.
    shift_clock(_seconds)

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from docket import Docket, Worker
from docket.worker.program import run_program

from .broken import BUILDS
from .histories import History
from .metric_counts import ABANDONED, MetricCounts
from .settings import CHILDREN, CONCURRENCY, GRACE_SECONDS, LEASE_SECONDS, Settings
from .stalls import watch_for_stalls
from .work import FUNCTIONS
from .work.body import write_to

SAMPLE_SECONDS = 0.5
LONGEST_LINE = 400


class LogToHistory(logging.Handler):
    """Writes warnings and errors of docket into the
    history, except for tasks that fail on purpose."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith("↩"):
            self._history.write("log", level=record.levelname, text=text[:LONGEST_LINE])


class WatchedWorker(Worker):
    """A worker that writes its health and its metrics into the history twice a second."""

    def __init__(self, docket: Docket, **options: Any) -> None:
        super().__init__(docket, **options)
        for function in FUNCTIONS:
            docket.register(function)

    async def run_forever(self) -> None:
        async with sampling(self):
            await super().run_forever()


history: History
counts: MetricCounts


@contextlib.asynccontextmanager
async def sampling(worker: Worker) -> AsyncGenerator[None]:
    task = asyncio.create_task(_sample(worker))
    try:
        yield
    finally:
        task.cancel()


async def _sample(worker: Worker) -> None:
    was_working = False
    while True:
        problem = worker.health_problem()
        if worker.is_working:
            if not was_working:
                was_working = True
                history.write("ready")
            slots = worker.staff.slots.free
            abandoned = counts.totals.get(ABANDONED, 0)
            history.write("health", problem=problem, free=slots, abandoned=abandoned)
        await asyncio.sleep(SAMPLE_SECONDS)


async def main(settings: Settings) -> None:
    docket = settings.make_docket()
    try:
        await run_program(
            WatchedWorker,
            docket,
            wait=timedelta(seconds=120),
            name=settings.process,
            concurrency=CONCURRENCY,
            cpu_processes=CHILDREN,
            redelivery_timeout=timedelta(seconds=LEASE_SECONDS),
            reconnection_delay=timedelta(seconds=0.5),
            grace_period=timedelta(seconds=GRACE_SECONDS),
        )
    finally:
        history.write("metrics", totals=counts.totals)


if __name__ == "__main__":
    _settings = Settings.from_json(sys.argv[1])
    history = History(_settings.path, _settings.process)
    history.write("process", clock=_settings.clock_seconds)
    watch_for_stalls(history)
    write_to(history, _settings.path)
    counts = MetricCounts()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("docket").addHandler(LogToHistory(history))
    if _settings.broken:
        BUILDS[_settings.broken].apply()
    asyncio.run(main(_settings))
