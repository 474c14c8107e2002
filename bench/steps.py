"""What several sessions do: enqueue in bulk, and drain."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.driving import ProducerProcess, SessionFailed, Stage, WorkerProcesses, wait_for_first_mark
from bench.results import Recorder
from bench.server import BenchServer, Reading
from bench.sizes import Sizes
from bench.systems import System

SLACK_SECONDS = 30.0


@dataclass(frozen=True)
class Setting:
    """All that a session works with."""

    system: System
    stage: Stage
    server: BenchServer
    sizes: Sizes
    record: Recorder


@dataclass(frozen=True)
class Session:
    name: str
    measures: tuple[str, ...]
    tasks: int
    run: Callable[[Setting], None]
    slots: int = 1
    systems: tuple[str, ...] | None = None
    once: bool = False


@dataclass(frozen=True)
class Bulk:
    """What was enqueued, and what that cost the server."""

    count: int
    seconds: float
    used: Reading


def enqueue_in_bulk(setting: Setting, producer: ProducerProcess, first: int, most: int) -> Bulk:
    before, seconds = setting.server.read(), setting.sizes.enqueue_seconds
    done = producer.order("bulk", seconds + SLACK_SECONDS, first=first, count=most, seconds=seconds)
    return Bulk(done["count"], done["seconds"], setting.server.read().since(before))


def drain_some(setting: Setting, workers: WorkerProcesses, count: int, enough: int) -> float:
    """The rate of the first `enough` tasks of `count`, in whatever order they run."""
    marks, sizes = setting.stage.marks, setting.sizes
    wait_for_first_mark(marks, 0, count, sizes.start_seconds, workers)
    until = time.monotonic() + sizes.drain_seconds
    while (done := marks.done(0, count)) < enough and time.monotonic() < until:
        workers.check()
        time.sleep(0.01)
    began, ended = marks.span(0, count)
    return rate(done, began, ended)


def rate(tasks: int, began_ns: int, ended_ns: int) -> float:
    if tasks < 2 or ended_ns <= began_ns:
        raise SessionFailed(f"only {tasks} tasks ran")
    return (tasks - 1) / (ended_ns - began_ns) * 1e9
