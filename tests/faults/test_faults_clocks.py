"""Workers whose clocks are wrong (row C1)."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime

import pytest

from tests.waiting import WAIT_LIMIT, eventually

from . import tasks
from .conftest import Harness


@pytest.mark.parametrize("seconds", [120, -120])
async def test_nothing_starts_early_or_late_on_a_worker_whose_clock_is_two_minutes_off(
    harness: Harness, seconds: float
) -> None:
    docket = await harness.docket()
    worker = harness.worker_process(tasks=["every_task", "automatic_tasks"], clock_seconds=seconds)
    await harness.at_work(docket, worker)

    due = time.time() + 2.0
    scheduled = await docket.add(tasks.nap, datetime.fromtimestamp(due, UTC), key="scheduled")(0)
    retried = await docket.add(tasks.fail_twice, key="retried")()
    chained = await docket.add(tasks.pass_on, key="first")("second")

    assert await scheduled.get_result(timeout=WAIT_LIMIT) == str(worker.pid)
    assert await retried.get_result(timeout=WAIT_LIMIT) == 3
    await chained.get_result(timeout=WAIT_LIMIT)
    await harness.started("second")
    # Reports carry the wrong wall clock of the worker,
    # and the monotonic clock that all processes share.
    offset = time.time() - time.monotonic()
    start = harness.reports.read("start", "scheduled")[0]
    assert start.wall - (start.at + offset) == pytest.approx(seconds, abs=5), "the worker's clock was wrong"
    assert start.at + offset >= due - 0.01, "not early"
    assert start.at + offset < due + 10, "and not two minutes late"

    attempts = [report.at for report in harness.reports.read("start", "retried")]
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert len(pauses) == 2
    assert all(1.0 <= pause < 10 for pause in pauses), pauses

    handed_on = harness.reports.read("start", "second")[0].at - harness.reports.read("start", "first")[0].at
    assert handed_on < 10, "what a worker with a wrong clock adds is due at once, too"

    await eventually(lambda: harness.reports.count("start", "tick") >= 4, "the perpetual task goes on")
    ticks = [report.at for report in harness.reports.read("start", "tick")][:4]
    assert all(later - earlier >= 0.15 for earlier, later in itertools.pairwise(ticks)), ticks


@pytest.mark.parametrize("seconds", [-0.02, -0.3, -120])
async def test_a_cron_slot_runs_once_on_a_worker_whose_clock_is_behind(harness: Harness, seconds: float) -> None:
    docket = await harness.docket()
    worker = harness.worker_process(tasks=["cron_tasks"], clock_seconds=seconds)
    await harness.at_work(docket, worker)

    await eventually(lambda: len(slots(harness)) >= 5, "five slots have run")

    assert len(slots(harness)) == len(set(slots(harness))), slots(harness)


async def test_a_cron_slot_runs_once_though_the_event_loop_was_blocked_over_it(harness: Harness) -> None:
    docket = await harness.docket()
    worker = harness.worker_process(tasks=["every_task", "cron_tasks"])
    await harness.at_work(docket, worker)
    await eventually(lambda: len(slots(harness)) >= 1, "the slots have begun")

    await docket.add(tasks.block, key="block")(1.8)
    await harness.started("block")
    seen = len(slots(harness))
    await eventually(lambda: len(slots(harness)) >= seen + 5, "the slots go on")

    assert len(slots(harness)) == len(set(slots(harness))), slots(harness)


def slots(harness: Harness) -> list[str]:
    return [report.key for report in harness.reports.read("slot")]
