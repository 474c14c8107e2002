"""This package, with defaults: `Docket(name, url)`, `Worker(docket, concurrency=…)`. In bulk:
`add_many`. Every task has a record with its state, kept for 15 minutes."""

from __future__ import annotations

import asyncio

from bench.adapters.docket_api import DocketProducer, run_worker
from bench.adapters.serving import URL


def produce() -> DocketProducer:
    return DocketProducer(URL)


def work() -> None:
    asyncio.run(run_worker(URL))
