"""Holding the tasks of a function, or all tasks, and letting them go on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from docket import ConcurrencyLimit, Disposition, Docket, ExecutionState, Perpetual, Worker
from docket.errors import NotPaused, TooManyPauses
from docket.ledger import rules as stored_rules
from docket.worker.fleet import releaser
from tests.running import run_everything
from tests.times import later, now, soon
from tests.waiting import eventually

from .recorder import Recorder, add_all, held, registered, unpaused, working


async def test_waiting_and_new_tasks_are_held_and_go_on_in_order(docket: Docket, recorder: Recorder) -> None:
    await add_all(docket, recorder.serve, range(5))
    await docket.pause(recorder.serve)
    async with working(docket, concurrency=1):
        await add_all(docket, recorder.serve, range(5, 10))
        await held(docket, 10)
        await docket.add(recorder.other)()
        await eventually(lambda: recorder.served, "another function runs")
        assert recorder.served == ["other"]
        assert await docket.resume(recorder.serve) == 10
        await eventually(lambda: len(recorder.served) == 11, "all run")
    assert recorder.served == ["other", *range(10)]
    assert await docket.pauses() == []


async def test_a_whole_docket_pauses(docket: Docket, recorder: Recorder) -> None:
    await docket.pause("*")
    async with working(docket):
        await add_all(docket, recorder.serve, range(3))
        await docket.add(recorder.other)()
        await held(docket, 4)
        assert recorder.served == []
        assert await docket.resume("*") == 4
        await eventually(lambda: len(recorder.served) == 4, "all run")


async def test_a_running_task_goes_on(docket: Docket, recorder: Recorder) -> None:
    async with working(docket):
        execution = await docket.add(recorder.stay)()
        await recorder.has_begun.wait()
        await docket.pause(recorder.stay)
        recorder.may_end.set()
        await execution.get_result()
    assert recorder.served == ["stayed"]


async def test_a_held_task_is_queued_and_says_that_it_is_held(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    async with working(docket):
        execution = await docket.add(recorder.serve, key="k")(1)
        assert not execution.is_held
        await held(docket, 1)
        await execution.sync()
        found = await docket.get_execution("k")
        snapshot = await docket.snapshot()
    assert found is not None
    for seen in (execution, found, *snapshot.future):
        assert (seen.key, seen.state, seen.is_held, seen.message_id) == ("k", ExecutionState.QUEUED, True, None)
    assert snapshot.total_tasks == 1
    assert (await docket.add(recorder.serve, key="k")(2)).disposition is Disposition.ALREADY_SCHEDULED
    counts = await docket.ledger.queries.census()
    assert (counts.held, counts.queued, counts.ready) == (1, 1, 0)


async def test_a_held_task_can_be_cancelled_replaced_and_cleared(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    async with working(docket):
        await add_all(docket, recorder.serve, range(4))
        await held(docket, 4)
        await docket.cancel("0")
        await docket.replace(recorder.serve, now(), "1")(10)
        await docket.replace(recorder.serve, later(), "2")(20)
        await held(docket, 2)
        cancelled, replaced = await docket.get_execution("0"), await docket.get_execution("2")
        assert cancelled is not None
        assert replaced is not None
        assert (cancelled.state, cancelled.is_held) == (ExecutionState.CANCELLED, False)
        assert (replaced.state, replaced.is_held) == (ExecutionState.SCHEDULED, False)
        await docket.cancel("2")
        assert await docket.clear() == 2
        assert await docket.resume(recorder.serve) == 0
    assert await docket.pauses() == []
    assert recorder.served == []


async def test_a_replaced_task_goes_to_the_end_of_the_order(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    async with working(docket, concurrency=1):
        await add_all(docket, recorder.serve, range(3))
        await held(docket, 3)
        await docket.replace(recorder.serve, now(), "0")(10)
        await held(docket, 3)
        await docket.resume(recorder.serve)
        await eventually(lambda: len(recorder.served) == 3, "all run")
    assert recorder.served == [1, 2, 10]


async def test_a_scheduled_task_is_held_when_it_is_due(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    async with working(docket):
        await docket.add(recorder.serve, when=soon(30), key="k")(1)
        await held(docket, 1)
        await docket.resume(recorder.serve)
        await eventually(lambda: recorder.served == [1], "it runs")


async def test_a_chain_stays_alive_and_makes_up_for_one_run(docket: Docket) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=5), automatic=True)) -> None:
        runs.append(len(runs))

    docket.register(tick)
    async with working(docket):
        await eventually(lambda: len(runs) > 2, "the chain runs")
        await docket.pause(tick)
        await held(docket, 1)
        before = len(runs)
        counts = await docket.ledger.queries.census()
        assert (counts.unfinished, len(runs)) == (1, before)
        assert await docket.resume(tick) == 1
        await eventually(lambda: len(runs) > before + 2, "the chain runs again")


async def test_a_worker_that_runs_until_all_is_finished_does_not_wait_for_held_tasks(
    docket: Docket, recorder: Recorder
) -> None:
    await docket.pause(recorder.serve)
    await add_all(docket, recorder.serve, range(3))
    await docket.add(recorder.serve, when=soon(20))(3)
    await docket.add(recorder.other)()
    await run_everything(docket)
    assert recorder.served == ["other"]
    assert [pause.held for pause in await docket.pauses()] == [4]
    await docket.resume(recorder.serve)
    await run_everything(docket, concurrency=1)
    assert recorder.served == ["other", 0, 1, 2, 3]


async def test_more_tasks_than_one_batch_go_on_in_order_and_newcomers_wait_behind_them(
    docket: Docket, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The caller moves the first batch, and a worker the others: both move seven tasks at a time.
    monkeypatch.setattr(stored_rules, "RELEASE_BATCH", 7)
    for name in ("FIRST_BATCH", "LEAST_BATCH", "MOST_BATCH"):
        monkeypatch.setattr(releaser, name, 7)
    await docket.pause(recorder.serve)
    async with working(docket, concurrency=1):
        await add_all(docket, recorder.serve, range(50))
        await held(docket, 50)
        assert await docket.resume(recorder.serve) == 50
        await add_all(docket, recorder.serve, range(50, 80))
        await eventually(lambda: len(recorder.served) == 80, "all run", seen=lambda: recorder.served)
        await unpaused(docket)
    assert sorted(recorder.served) == list(range(80))
    assert [number for number in recorder.served if number < 50] == list(range(50))
    # The pause ends when the last batch is on the front stream. A blocked read takes from both
    # streams, so a newcomer may start among these last tasks, and not before. Newcomers that were
    # held are among them, too, so the order of newcomers is not certain.
    assert recorder.served[: 50 - 7] == list(range(50 - 7))


async def test_the_workers_finish_a_resume_whose_caller_is_gone(docket: Docket, recorder: Recorder) -> None:
    """The caller only begins: no worker runs while it resumes."""
    await docket.pause(recorder.serve)
    await docket.add_many([docket.call(recorder.serve, key=str(n))(n) for n in range(450)])
    await run_everything(docket)
    await docket.resume(recorder.serve)
    (pause,) = await docket.pauses()
    assert (pause.held, pause.is_resuming) == (250, True)
    assert await docket.resume(recorder.serve) == 250, "to resume again is harmless"
    await run_everything(docket, concurrency=1)
    assert recorder.served == list(range(450))
    assert await docket.pauses() == []


async def test_a_pause_during_a_resume_holds_the_rest_in_order(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    await docket.add_many([docket.call(recorder.serve, key=str(n))(n) for n in range(250)])
    await run_everything(docket)
    await docket.resume(recorder.serve)
    pause = await docket.pause(recorder.serve)
    assert (pause.held, pause.is_resuming) == (50, False)
    await run_everything(docket)
    assert recorder.served == []
    assert [pause.held for pause in await docket.pauses()] == [250]
    await docket.resume(recorder.serve)
    await run_everything(docket, concurrency=1)
    assert recorder.served == list(range(250))


async def test_a_task_that_two_pauses_match_goes_on_after_both(docket: Docket, recorder: Recorder) -> None:
    await docket.pause("*")
    await docket.pause(recorder.serve)
    async with working(docket, concurrency=1):
        await add_all(docket, recorder.serve, range(3))
        await docket.add(recorder.other)()
        await held(docket, 4)
        assert {str(pause): pause.held for pause in await docket.pauses()} == {"*(...)": 1, "serve(...)": 3}
        await docket.resume(recorder.serve)
        await eventually(lambda: _held_by_all(docket, 4), "the other pause holds them")
        assert recorder.served == []
        await docket.resume("*")
        await eventually(lambda: len(recorder.served) == 4, "all run")
    assert [served for served in recorder.served if served != "other"] == [0, 1, 2]


async def _held_by_all(docket: Docket, count: int) -> bool:
    return [pause.held for pause in await docket.pauses()] == [count]


async def test_pausing_twice_changes_nothing(docket: Docket, recorder: Recorder) -> None:
    first = await docket.pause(recorder.serve)
    assert await docket.pause("serve") == first
    assert await docket.pauses() == [first]
    assert (first.function, first.parameter, first.held, first.is_resuming) == ("serve", None, 0, False)
    assert abs(first.since - now()) < timedelta(minutes=5)


async def test_a_listed_pause_can_be_resumed(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    (pause,) = await docket.pauses()
    assert await docket.resume(pause) == 0
    with pytest.raises(NotPaused, match="nothing is"):
        await docket.resume(pause)


async def test_resuming_what_is_not_paused_says_what_is(docket: Docket, recorder: Recorder) -> None:
    with pytest.raises(NotPaused, match=r"serve\(\.\.\.\) is not paused; nothing is"):
        await docket.resume(recorder.serve)
    await docket.pause(recorder.other)
    await docket.pause("*", "region", "==", "north")
    with pytest.raises(
        LookupError, match=r"\*\(\.\.\.\) is not paused; paused are: other\(\.\.\.\); \*\(region == 'north'\)"
    ):
        await docket.resume("*")
    assert len(await docket.pauses()) == 2


async def test_a_docket_has_a_thousand_pauses_at_most(
    docket: Docket, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rules, "MOST_PAUSES", 2)
    await docket.pause("a")
    await docket.pause("b", "x", "==", 1)
    with pytest.raises(TooManyPauses):
        await docket.pause("c")
    await docket.pause("a")
    await docket.resume("b", "x", "==", 1)
    await docket.pause("c")


async def test_a_held_task_has_no_slot_of_its_limit(docket: Docket) -> None:
    """A task that a limit has woken is held, and the next waiter gets the slot."""
    recorder = registered(docket)

    async def limited(number: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await recorder.serve(number)

    async def blocker(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1, scope="x")) -> None:
        await recorder.stay()

    docket.register(limited)
    docket.register(blocker)
    await docket.pause(limited)
    async with working(docket):
        await add_all(docket, limited, range(5))
        await held(docket, 5)
        counts = await docket.ledger.queries.census(with_slots=True)
        assert counts.slots == 0
        await docket.resume(limited)
        await eventually(lambda: len(recorder.served) == 5, "all run")
    assert sorted(recorder.served) == list(range(5))


async def test_a_paused_function_is_struck_when_it_goes_on(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve)
    async with working(docket):
        execution = await docket.add(recorder.serve)(1)
        await held(docket, 1)
        await docket.strike(recorder.serve)
        await docket.resume(recorder.serve)
        await eventually(lambda: _is(docket, execution.key, ExecutionState.CANCELLED), "it is struck")
    assert recorder.served == []


async def _is(docket: Docket, key: str, state: ExecutionState) -> bool:
    execution = await docket.get_execution(key)
    return execution is not None and execution.state is state


async def test_a_paused_docket_and_a_worker_that_starts_later(docket: Docket, recorder: Recorder) -> None:
    await docket.pause("*")
    await add_all(docket, recorder.serve, range(3))
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert recorder.served == []
    assert [pause.held for pause in await docket.pauses()] == [3]
