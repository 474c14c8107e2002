"""A worker whose slots turn over quickly has the next tasks at hand; none waits there for long,
none runs beyond the slots."""

from __future__ import annotations

import asyncio

import pytest

from docket import Docket, ExecutionCancelled, ExecutionState, Worker
from docket.worker.claiming import intake
from docket.worker.claiming.intake import Prefetcher
from docket.worker.running.runs import CancelReason, Run, Runs, Slots
from tests.run_log import RunLog
from tests.running import worker_at_work
from tests.waiting import SECONDS, eventually


class Line:
    """A line of its own, of a worker that is not there;
    what it would begin and requeue is noted."""

    def __init__(self, count: int = 8) -> None:
        self.slots = Slots(count)
        self.lapsed = False
        self.begun: list[str] = []
        self.requeued: list[str] = []
        self.prefetch = Prefetcher(
            self.slots, lambda: self.lapsed, self._begin, lambda run: self.requeued.append(run.key)
        )

    def _begin(self, run: Run) -> bool:
        if run.reason is None:
            self.begun.append(run.key)
        return run.reason is None

    def fill(self, *keys: str) -> list[Run]:
        """No slot is free, and these wait for one."""
        while self.slots.free:
            self.slots.take()
        runs = [Run(key, b"", n, 0) for n, key in enumerate(keys)]
        for run in runs:
            self.prefetch.add(run)
        return runs


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if slots turned over all the time, and patience were long."""
    monkeypatch.setattr(Prefetcher, "_current_rate", lambda _: 1e9)
    monkeypatch.setattr(intake, "LONGEST_WAIT", SECONDS)
    monkeypatch.setattr(intake, "MUCH_TOO_LONG", SECONDS)


async def test_nothing_is_taken_ahead_while_slots_do_not_turn_over() -> None:
    assert Line().prefetch.room() == 0


async def test_as_many_are_taken_ahead_as_slots_turn_over_within_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(1000)
    monkeypatch.setattr(Prefetcher, "_current_rate", lambda _: 500.0)
    assert line.prefetch.room() == 5
    line.prefetch.add(Run("k", b"", 1, 0))
    assert line.prefetch.room() == 4


@pytest.mark.usefixtures("eager")
async def test_there_is_room_for_four_tasks_per_slot_but_the_first() -> None:
    assert [Line(count).prefetch.room() for count in (1, 3, 4, 40, 1000)] == [0, 8, 12, intake.MOST, intake.MOST]


async def test_a_slot_that_is_given_back_goes_to_the_first_in_line() -> None:
    line = Line()
    line.fill("a", "b")
    for _ in range(3):
        line.slots.give_back()
    assert (line.begun, line.slots.free) == (["a", "b"], 1)


async def test_one_that_was_cancelled_while_it_waited_uses_no_slot() -> None:
    line = Line()
    cancelled, _ = line.fill("a", "b")
    cancelled.cancel(CancelReason.REQUESTED)
    line.slots.give_back()
    assert (line.begun, line.slots.free) == (["b"], 0)


async def test_after_the_lease_has_lapsed_nothing_begins() -> None:
    line = Line()
    line.fill("a")
    line.lapsed = True
    line.slots.give_back()
    assert (line.begun, line.slots.free) == ([], 1)


async def test_what_finds_no_slot_soon_is_requeued() -> None:
    line = Line()
    line.fill("a", "b")
    await eventually(lambda: line.requeued == ["a", "b"], "both are requeued")
    line.slots.give_back()
    assert (line.begun, line.slots.free) == ([], 1)


async def test_what_would_wait_too_long_behind_a_few_slots_is_requeued_in_its_order() -> None:
    line = Line()
    keys = [f"{n}" for n in range(40)]
    line.fill(*keys)

    async def turn_over_slowly() -> bool:
        # About one slot in each check.
        await asyncio.sleep(intake.LONGEST_WAIT / 2)
        line.slots.give_back()
        return bool(line.requeued)

    await eventually(turn_over_slowly, "the latest are requeued")
    assert len(line.requeued) >= 10
    assert line.requeued == keys[40 - len(line.requeued) :]
    assert line.begun == keys[: len(line.begun)]


async def test_all_runs_of_a_lost_lease_are_marked_those_that_wait_included() -> None:
    runs, waiting = Runs(), Run("k", b"", 1, 0)
    runs.add(waiting)
    runs.cancel_all(CancelReason.LEASE_LOST)
    assert waiting.reason is CancelReason.LEASE_LOST


# With a worker


async def fill_up(docket: Docket, worker: Worker, run_log: RunLog, more: int) -> list[str]:
    """All slots are taken, and so many tasks more are
    claimed without one. Returns the keys of these."""
    total = worker.concurrency + more
    executions = await docket.add_many(docket.call(run_log.hold)(n) for n in range(total))
    await eventually(lambda: len(worker.runs) == total, f"{total} are claimed")
    await run_log.has(*range(worker.concurrency))
    assert len(run_log.began) == worker.concurrency
    return [execution.key for execution in executions[worker.concurrency :]]


@pytest.mark.usefixtures("eager")
async def test_what_is_taken_ahead_runs_when_there_is_a_slot_and_not_before(docket: Docket) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=8) as worker:
        await fill_up(docket, worker, run_log, 2)
        run_log.let_go(0)
        await run_log.has(8)
        assert run_log.most_at_once[None] == 8
        run_log.let_go(*range(10))


@pytest.mark.usefixtures("eager")
async def test_what_is_taken_ahead_can_be_cancelled_and_does_not_run(docket: Docket) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=8) as worker:
        key, _ = await fill_up(docket, worker, run_log, 2)
        await docket.cancel(key)
        await eventually(lambda: any(run.key == key and run.reason for run in worker.runs.all()), "it heard of it")
        run_log.let_go(*range(10))
        execution = await docket.get_execution(key)
        assert execution is not None
        with pytest.raises(ExecutionCancelled):
            await execution.get_result()
    assert 8 not in run_log.began


@pytest.mark.usefixtures("eager")
async def test_what_is_taken_ahead_goes_back_untouched_when_the_worker_stops(docket: Docket) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=8) as worker:
        keys = await fill_up(docket, worker, run_log, 2)
        worker.stop()
        await eventually(lambda: len(worker.runs) == 8, "they are requeued")
        for key in keys:
            execution = await docket.get_execution(key)
            assert execution is not None
            assert (execution.state, execution.redelivered) == (ExecutionState.QUEUED, False)
        run_log.let_go(*range(8))


async def test_what_long_tasks_keep_waiting_goes_to_another_worker(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=8) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(Prefetcher, "_current_rate", lambda _: 1e9)
            patch.setattr(intake, "LONGEST_WAIT", 0.5)
            await fill_up(docket, worker, run_log, 2)
        async with worker_at_work(docket, concurrency=8):
            await run_log.has(8, 9)
            run_log.let_go(*range(10))


async def test_quick_tasks_never_run_more_at_a_time_than_there_are_slots(docket: Docket) -> None:
    run_log = RunLog()
    await docket.add_many(docket.call(run_log.nap)(n, None, 0.001) for n in range(1000))
    async with worker_at_work(docket, concurrency=20):
        await eventually(lambda: len(run_log.ended) == 1000, "all have run")
    assert sorted(run_log.began) == list(range(1000))
    assert run_log.most_at_once[None] == 20
