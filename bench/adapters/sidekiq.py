"""Ruby. `sidekiq -c …` in one process, with `retry: false`, defaults otherwise. In bulk:
`push_bulk`. A pipe to Ruby carries the orders, so figures for one task at a time include about
0.1 ms of it. A mark is four calls of the system. It acknowledges nothing: a task is gone from Redis
when a worker takes it. With its default log: INFO, two lines per job."""

from __future__ import annotations

import os
from pathlib import Path

from bench.adapters.lines import LineProducer
from bench.adapters.serving import CONCURRENCY, DEFAULT_LOG

PROGRAM = str(Path(__file__).with_suffix(".rb"))


def produce() -> LineProducer:
    return LineProducer("ruby", PROGRAM)


def work() -> None:
    os.environ["BENCH_QUIET"] = "" if DEFAULT_LOG else "1"
    os.execvp("sidekiq", ["sidekiq", "-r", PROGRAM, "-c", str(CONCURRENCY)])
