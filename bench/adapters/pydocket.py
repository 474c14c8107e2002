"""Defaults, except the connection pool: redis-py's default of 100 connections is raised to 2,000
(`max_connections` in the URL), since its worker wants about one connection per running task. In
bulk: `add_many`. Every task has a record with its state, kept for 15 minutes. With its default
log: `docket worker`, INFO, two lines per task."""

from __future__ import annotations

import asyncio

from bench.adapters.docket_api import DocketProducer, run_command, run_worker
from bench.adapters.serving import DEFAULT_LOG, URL

LARGE_POOL = f"{URL}?max_connections=2000"


def produce() -> DocketProducer:
    return DocketProducer(LARGE_POOL)


def work() -> None:
    if DEFAULT_LOG:
        run_command(LARGE_POOL)
    asyncio.run(run_worker(LARGE_POOL))
