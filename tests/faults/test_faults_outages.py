"""What the log of a worker says about an outage: little, and the truth."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime, timedelta

import pytest

from docket import ConcurrencyLimit, CurrentExecution, Execution, Perpetual
from tests.waiting import WAIT_LIMIT, ends, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("docket") and r.levelno >= level]


async def test_an_outage_is_one_warning_and_its_end_is_one_line(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the worker is at: it renews, stages, seeds, settles, admits and reports progress."""
    caplog.set_level(logging.DEBUG, "docket")
    server = harness.server("--appendonly", "yes", "--appendfsync", "always", tcp=True)
    docket = await harness.docket()
    counted = CountedTasks(docket)
    reported = asyncio.Event()

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(seconds=0.1), automatic=True)) -> None: ...

    async def limited(
        at: str, limit: ConcurrencyLimit = ConcurrencyLimit("at", 1), execution: Execution = CurrentExecution()
    ) -> None:
        counted.starts[at] += 1
        await counted.release.wait()
        await execution.progress.set_message("meanwhile")
        reported.set()

    docket.register(tick)
    docket.register(limited)
    async with working(await harness.worker(docket)):
        await counted.hold("running")
        first = await docket.add(limited)("a")
        await eventually(lambda: counted.starts["a"], "it runs")
        await docket.add(counted.short, datetime.now(UTC) + timedelta(seconds=1), key="later")()
        caplog.clear()
        server.kill()
        await eventually(lambda: len(said(caplog, logging.DEBUG)) > 5, "attempts fail")
        counted.release.set()
        await eventually(reported.is_set, "progress is reported")
        before = len(said(caplog, logging.DEBUG))
        await eventually(lambda: len(said(caplog, logging.DEBUG)) > before + 20, "more attempts fail")
        warnings = said(caplog, logging.WARNING)
        assert len(warnings) == 1, warnings
        assert "trying again until the server is back" in warnings[0]
        server.start()
        await counted.works("after")
        await first.get_result(timeout=WAIT_LIMIT)
        back = r"the server is back after [\d.]+ s"
        await eventually(lambda: any(re.fullmatch(back, line) for line in said(caplog, logging.INFO)), "it is told")
        assert said(caplog, logging.WARNING) == warnings
    assert sum("the server is back after" in line for line in said(caplog, logging.INFO)) == 1


async def test_a_worker_is_well_again_after_an_outage_though_nothing_happens(harness: Harness) -> None:
    """A service that waits for an event says that it no longer fails."""
    server = harness.server("--appendonly", "yes", "--appendfsync", "always", tcp=True)
    docket = await harness.docket()
    counted = CountedTasks(docket)
    worker = await harness.worker(docket)
    async with working(worker):
        await counted.works("before")
        server.kill()
        await eventually(lambda: worker.health_problem() is not None, "it notices")
        server.start()
        await eventually(lambda: worker.health_problem() is None, "it is well")
        # Services beside the worker, such as the one that
        # follows the strikes, come back by themselves.
        await eventually(lambda: not docket.server.outages.is_on, "the outage is over")


async def test_a_redelivery_is_marked_in_the_log(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "docket")
    docket = await harness.docket(lease=1.0)

    async def nap(seconds: float) -> None: ...

    docket.register(nap)
    await docket.add(nap, key="long")(60)
    lost = harness.worker_process()
    await harness.started("long")
    lost.kill()
    await ends((await harness.worker(docket)).run_until_finished())
    lines = [line for line in said(caplog, logging.INFO) if line.startswith("↪")]
    assert len(lines) == 1
    assert lines[0].endswith("(redelivered)")


async def test_a_short_restart_is_one_outage(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """The connection of the renewal, which was idle meanwhile, is opened again before anybody
    notices that it is dead."""
    caplog.set_level(logging.INFO, "docket")
    server = harness.server("--appendonly", "yes", "--appendfsync", "always", tcp=True)
    docket = await harness.docket(lease=6.0)
    counted = CountedTasks(docket)

    def times(words: str) -> int:
        return sum(words in line for line in said(caplog, logging.INFO))

    async with working(await harness.worker(docket)):
        await counted.works("before")
        for restart in range(1, 4):
            server.kill()
            server.start()
            await eventually(lambda n=restart: times("the server is back after") >= n, "it is told")
            # Longer than between two renewals.
            await asyncio.sleep(2.0)
            assert not docket.server.outages.is_on
            assert times("trying again until the server is back") == restart
            assert times("the server is back after") == restart
