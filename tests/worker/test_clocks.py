"""Which time it is for a worker and its tasks: the server's,
whatever this machine's clock and event loop do."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docket import Cron, CurrentExecution, CurrentWorker, Docket, Execution, Worker
from docket.model.times import from_ms
from docket.worker.lease import lease
from docket.worker.lease.lease import ServerClock, arrival_clock
from tests.running import at_work
from tests.waiting import eventually


class Clocks:
    """A server's clock, and the wall clock of a machine that is behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, behind_ms: float) -> None:
        self.server_ms = 1_000_000.0
        monkeypatch.setattr(time, "time", lambda: (self.server_ms - behind_ms) / 1000)

    def ask(self, clock: ServerClock, there_ms: float, back_ms: float) -> None:
        self.server_ms += there_ms
        answer = self.server_ms // 1
        self.server_ms += back_ms
        clock.note(answer, (there_ms + back_ms) / 1000)


@pytest.mark.parametrize("behind_ms", [20, -20, 300, 120_000, -120_000])
def test_a_clock_that_is_off_is_corrected_to_within_a_round_trip(
    monkeypatch: pytest.MonkeyPatch, behind_ms: float
) -> None:
    clocks, clock = Clocks(monkeypatch, behind_ms), ServerClock()
    clocks.ask(clock, 0.4, 0.6)
    assert clock.now_ms() == pytest.approx(clocks.server_ms, abs=2.0)


@pytest.mark.parametrize("lag", [(1800, 0), (0, 1800), (900, 900)])
def test_an_answer_that_is_late_changes_nothing(monkeypatch: pytest.MonkeyPatch, lag: tuple[float, float]) -> None:
    clocks, clock = Clocks(monkeypatch, 20), ServerClock()
    clocks.ask(clock, 0.4, 0.6)
    clocks.ask(clock, *lag)
    assert clock.now_ms() == pytest.approx(clocks.server_ms, abs=2.0)


class Link:
    """The steady clock of this machine, and the clock of a server, which shows microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady_ms = 5_000.0
        self.ahead_ms = 777.0
        monkeypatch.setattr(lease, "steady_seconds", lambda: self.steady_ms / 1000)

    @property
    def server_ms(self) -> float:
        return self.steady_ms + self.ahead_ms

    def ask(self, clock: ServerClock, there_ms: float, back_ms: float) -> None:
        self.steady_ms += there_ms
        answer = round(self.server_ms, 3)
        self.steady_ms += back_ms
        clock.note(answer, (there_ms + back_ms) / 1000)


def test_a_request_that_is_as_quick_as_the_quickest_arrives_when_its_clock_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link, clock = Link(monkeypatch), arrival_clock()
    for there_ms, back_ms in ((9.0, 0.1), (0.4, 0.5), (0.2, 30.0), (0.3, 0.1)):
        link.ask(clock, there_ms, back_ms)
    assert clock.now_ms() == pytest.approx(link.server_ms + 0.2, abs=0.01)


@pytest.mark.parametrize("step_ms", [-2_000.0, 2_000.0])
def test_a_step_of_the_servers_clock_is_followed_with_the_next_answer(
    monkeypatch: pytest.MonkeyPatch, step_ms: float
) -> None:
    link, clock = Link(monkeypatch), arrival_clock()
    link.ask(clock, 0.2, 0.3)
    link.ahead_ms += step_ms
    link.ask(clock, 0.2, 0.3)
    assert clock.now_ms() == pytest.approx(link.server_ms, abs=0.5)


async def test_a_worker_with_a_wrong_clock_knows_the_servers_time(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 0.3)
    async with Worker(docket) as worker, at_work(worker):
        await eventually(lambda: abs(worker.now_ms() - right() * 1000) < 50, "the worker knows the server's time")


async def test_an_event_loop_that_was_blocked_does_not_change_the_clock(docket: Docket, worker: Worker) -> None:
    errors: list[float] = []

    async def block(worker: Worker = CurrentWorker()) -> None:
        # Its answer comes while nobody reads what the renewal thread says.
        worker.staff.registration.renewer.renew_now()
        time.sleep(1.8)
        for _ in range(3):
            await docket.ledger.queries.unfinished()
            errors.append(abs(worker.now_ms() - time.time() * 1000))

    docket.register(block)
    async with at_work(worker):
        await (await docket.add(block)()).get_result()
    assert max(errors) < 500


async def test_a_run_starts_at_the_servers_time_of_its_claim(docket: Docket, worker: Worker) -> None:
    """Also where the server hands it over, and whatever the worker's own clock says."""
    seen: dict[str, tuple[Any, Any]] = {}

    async def look(execution: Execution = CurrentExecution()) -> None:
        found = await docket.ledger.tasks.get(execution.key)
        assert found.run is not None
        seen[execution.key] = (execution.started_at, from_ms(found.run.started_ms))

    docket.register(look)
    taken = await docket.add(look, key="taken")()
    async with at_work(worker):
        await taken.get_result()
        await eventually(lambda: worker.staff.fetcher.has_offer, "the worker offers a slot")
        await (await docket.add(look, key="delivered")()).get_result()
    assert set(seen) == {"taken", "delivered"}
    for told, written in seen.values():
        assert told == written


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system cannot tell for how long it was suspended")
async def test_a_lease_ends_while_the_machine_is_suspended(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.clock_gettime
    suspended = 0.0

    def clock_gettime(id: int) -> float:
        return right(id) + (suspended if id == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    async with at_work(worker):
        await eventually(lambda: worker.staff.registration.lease.age < 1, "the lease is fresh")
        assert not worker.staff.registration.lease.lapsed
        suspended = worker.staff.lease_ms / 1000 + 1
        assert worker.staff.registration.lease.lapsed
        # And the server is asked soon after, not after the rest of an interval.
        await eventually(lambda: not worker.staff.registration.lease.lapsed, "the worker has a lease again")


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=-1)])
async def test_the_first_slot_of_an_automatic_cron_is_the_next_by_the_servers_clock(
    docket: Docket, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    async def hourly(cron: Cron = Cron("0 * * * *")) -> None: ...

    docket.register(hourly)
    began = datetime.now(UTC)
    monkeypatch.setattr(docket.server.clock, "now", lambda: datetime.now(UTC) + ahead)
    async with Worker(docket) as worker, at_work(worker):
        seeded = await docket.get_execution("hourly")
    assert seeded is not None
    assert timedelta(0) < seeded.when - began <= timedelta(hours=1, minutes=1)
