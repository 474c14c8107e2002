"""Whatever is closed under a running worker, and in which
order: the run returns, the lease goes, the process ends."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.waiting import SECONDS

from .conftest import Harness
from .processes import Process

# The promise is two seconds, and five for a body that ignores its cancel. Processes share the
# machine with other tests.
PLAIN_SECONDS, STUBBORN_SECONDS = 60.0, 60.0
AT_ONCE = (
    "exception",
    "exception_in_docket",
    "docket_first",
    "docket_only",
    "cancelled",
    "interrupted",
    "loop_ends",
)
LOOP_GONE = ("loop_closed", "loop_left", "docket_after_loop")


def program(harness: Harness, order: str, body: str = "plain", method: str = "run_forever", url: str = "") -> Process:
    return harness.process(["-W", "ignore", "-m", "tests.faults.teardown", order, body, method, url or harness.url])


async def ended(process: Process, seconds: float) -> str:
    """What it said, once it has ended by itself; `seconds`
    are counted from the moment at which it began to close."""
    await process.ended()
    assert closed_after(process) < seconds, process.output
    assert "trying again" not in process.output, process.output
    return process.output


def closed_after(process: Process) -> float:
    took = re.search(r"ended after ([\d.]+) s", process.output)
    assert took is not None, process.output
    return float(took[1])


async def assert_task_is_free(harness: Harness) -> None:
    """The worker is no longer registered, and the next one
    has the task without waiting for a lease to end."""
    docket = await harness.docket("teardown")
    assert await docket.workers() == []
    ran = asyncio.Event()

    async def plain() -> None:
        ran.set()

    docket.register(plain, names=["plain", "stubborn", "closing_docket", "leaving_both"])
    worker = await harness.worker(docket)
    async with asyncio.timeout(SECONDS):
        await worker.run_until_finished()
    assert ran.is_set()


@pytest.mark.parametrize("order", AT_ONCE)
async def test_a_process_ends_and_its_task_goes_back_whatever_is_closed_first(harness: Harness, order: str) -> None:
    harness.server(tcp=True)
    said = await ended(program(harness, order), PLAIN_SECONDS)
    # A loop that ends cancels the body, too, which may be over before the worker begins to drain.
    assert order == "loop_ends" or "Shutdown requested, finishing 1" in said
    await assert_task_is_free(harness)


@pytest.mark.parametrize("order", [*AT_ONCE, *LOOP_GONE])
async def test_a_process_with_its_own_memory_server_ends_whatever_is_closed_first(harness: Harness, order: str) -> None:
    await ended(program(harness, order, url="memory://teardown"), PLAIN_SECONDS)


@pytest.mark.parametrize("order", LOOP_GONE)
async def test_a_worker_whose_event_loop_is_gone_is_no_longer_registered_when_its_process_ends(
    harness: Harness, order: str
) -> None:
    harness.server(tcp=True)
    await ended(program(harness, order), PLAIN_SECONDS)
    await assert_task_is_free(harness)


@pytest.mark.parametrize("order", ["exception", "docket_only", "loop_ends", "cancelled"])
async def test_a_body_that_ignores_its_cancel_cannot_keep_the_process_alive(harness: Harness, order: str) -> None:
    harness.server(tcp=True)
    said = await ended(program(harness, order, "stubborn"), STUBBORN_SECONDS)
    assert "left behind: task" in said
    await assert_task_is_free(harness)


@pytest.mark.parametrize("method", ["run_forever", "run_until_finished", "run_at_most"])
async def test_a_block_left_normally_waits_for_its_run_which_finishes_its_task(harness: Harness, method: str) -> None:
    harness.server(tcp=True)
    said = await ended(program(harness, "left", "short", method), PLAIN_SECONDS)
    assert said.index("closing") < said.index("finished by itself") < said.index("the run returned")
    docket = await harness.docket("teardown")
    assert await docket.workers() == []
    assert (await docket.snapshot()).total_tasks == 0


@pytest.mark.parametrize("place", ["memory", "tcp"])
async def test_a_worker_whose_server_object_was_closed_lets_go(harness: Harness, place: str) -> None:
    if place == "tcp":
        harness.server(tcp=True)
    url = "memory://teardown" if place == "memory" else ""
    said = await ended(program(harness, "server_only", url=url), PLAIN_SECONDS)
    assert "the run returned" in said


@pytest.mark.parametrize("body", ["closing_docket", "leaving_both"])
async def test_a_task_that_closes_its_own_docket_goes_back_at_once(harness: Harness, body: str) -> None:
    """It cannot be waited for, and it is not left behind either."""
    harness.server(tcp=True)
    said = await ended(program(harness, "inside", body), PLAIN_SECONDS)
    assert "the run returned" in said
    assert "left behind" not in said
    await assert_task_is_free(harness)


# Promised are two seconds, five for a body that ignores its cancel, and the grace period where
# there is one. The bounds below are wider: the process measures wall time, of which a busy machine
# takes a part. They still tell one deadline from several: without it, five workers take ten seconds
# and a server that hangs keeps a worker for twenty.


async def test_a_server_that_hangs_keeps_nothing_from_closing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All waits together have one deadline."""
    server = harness.server(tcp=True)
    monkeypatch.setenv("SERVER_PID", str(server.pid))
    process = program(harness, "hangs")
    await process.ended()
    assert closed_after(process) < 15.0, process.output


@pytest.mark.parametrize(
    ("order", "seconds"),
    [
        # Promised are the grace period of a second and five more.
        ("hangs_in_grace", 18.0),
        # Half a second after the first order comes the second, and then two more are promised.
        ("hangs_and_told_twice", 15.0),
        ("hangs_and_cancelled_twice", 15.0),
    ],
)
async def test_a_server_that_hangs_keeps_no_worker_from_stopping(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, order: str, seconds: float
) -> None:
    """Endings, the registration and connections
    are waited for together, not one after the other."""
    server = harness.server(tcp=True)
    monkeypatch.setenv("SERVER_PID", str(server.pid))
    process = program(harness, order)
    await process.ended()
    assert "the run returned" in process.output
    assert closed_after(process) < seconds, process.output


async def test_five_workers_share_one_deadline_when_the_server_hangs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = harness.server(tcp=True)
    monkeypatch.setenv("SERVER_PID", str(server.pid))
    process = program(harness, "five_workers_hang")
    await process.ended()
    assert closed_after(process) < 9.0, process.output


async def test_two_workers_whose_tasks_ignore_their_cancel_share_one_deadline(harness: Harness) -> None:
    harness.server(tcp=True)
    process = program(harness, "two_workers", "stubborn")
    await process.ended()
    assert process.output.count("left behind: task") == 2
    assert closed_after(process) < 9.0, process.output
