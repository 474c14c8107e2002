"""Sessions in which many tasks wait, or are scheduled."""

from __future__ import annotations

import time

import psutil

from bench.driving import NotSupported, ProducerProcess, SessionFailed, producing, working
from bench.figures import percentile
from bench.measures import USUAL
from bench.sizes import Sizes
from bench.steps import SLACK_SECONDS, Session, Setting, drain_some, enqueue_in_bulk

ONE_HOUR = 3600.0
# What a waiting task needs on the server and in the file of marks, and as much again to be safe.
BYTES_PER_TASK = 400


def with_backlog(sizes: Sizes, size: int, kind: str) -> Session:
    """`waiting`: tasks that could run now; `later`: tasks scheduled for an hour from now."""
    drain, enqueue = f"{kind}_drain_{size}", f"{kind}_enqueue_{size}"

    def run(setting: Setting) -> None:
        with producing(setting.stage) as producer:
            _fill(setting, producer, size, kind)
            limits = {"count": sizes.one_by_one, "seconds": sizes.one_by_one_seconds}
            limit = sizes.one_by_one_seconds + SLACK_SECONDS
            done = producer.order("one_by_one", limit, first=size, **limits)
            setting.record.add(enqueue, percentile(done["each_ms"], 0.5))
            first = size + done["count"]
            count = first + enqueue_in_bulk(setting, producer, first, sizes.drain_tasks).count
        with working(setting.stage, USUAL) as workers:
            setting.record.add(drain, drain_some(setting, workers, count, min(sizes.drain_tasks, count - size)))

    tasks = size + sizes.one_by_one + sizes.drain_tasks
    return Session(
        f"{size:,} {kind}", (drain, enqueue), tasks, run, slots=USUAL, systems=sizes.backlog_systems, once=True
    )


def _fill(setting: Setting, producer: ProducerProcess, size: int, kind: str) -> None:
    if not size:
        return
    seconds = setting.sizes.fill_seconds
    if kind == "later":
        done = producer.order("bulk_at", seconds + SLACK_SECONDS, first=0, count=size, seconds=seconds, delay=ONE_HOUR)
    else:
        done = producer.order("bulk", seconds + SLACK_SECONDS, first=0, count=size, seconds=seconds)
    if done["count"] < size:
        raise SessionFailed(f"only {done['count']:,} of {size:,} tasks were enqueued in {seconds:g} s")


def with_largest_backlog(sizes: Sizes) -> Session:
    """Enqueues as many tasks as large users have waiting, then reads and drains some of them."""
    size = sizes.largest
    measures = ("largest_enqueue", "largest_bytes", "largest_snapshot", "largest_top", "largest_drain")

    def run(setting: Setting) -> None:
        if psutil.virtual_memory().available < size * BYTES_PER_TASK:
            raise NotSupported(f"needs {size * BYTES_PER_TASK / 1e9:.0f} GB of free memory")
        empty, record = setting.server.read(), setting.record
        with producing(setting.stage) as producer:
            began = time.monotonic()
            _fill(setting, producer, size, "waiting")
            record.add("largest_enqueue", size / (time.monotonic() - began))
        setting.server.wait_until_alone()
        record.add("largest_bytes", setting.server.read().since(empty).memory_bytes / size)
        record.add("largest_snapshot", _seconds_of(setting, "snapshot"))
        record.add("largest_top", _seconds_of(setting, "top", "--count", "1"))
        with working(setting.stage, USUAL) as workers:
            record.add("largest_drain", drain_some(setting, workers, size, min(sizes.drain_tasks, size)))

    return Session(f"{size:,} waiting, read and drained", measures, size, run, USUAL, systems=("docket",), once=True)


def _seconds_of(setting: Setting, *command: str) -> float:
    """How long a command of docket takes, without the start of Python and the imports."""
    spent: list[float] = []
    for words in ((*command, "--docket", "bench", "--url", setting.server.url), ("--version",)):
        began = time.monotonic()
        done = setting.stage.run_module("docket", *words)
        spent.append(time.monotonic() - began)
        if done.returncode:
            raise SessionFailed(f"docket {words[0]}: {done.stderr.strip().rpartition(chr(10))[2]}")
    return max(spent[0] - spent[1], 0.0)
