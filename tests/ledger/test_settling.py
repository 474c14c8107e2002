"""How a run ends: written down once, by the run that counts."""

from __future__ import annotations

import pytest

from docket.codec import decode_call, encode_call
from docket.errors import Undecodable
from docket.ledger import Answer, Delivery, ProgressChange, Unwritten, hand_back, reschedule, unknown_function
from docket.ledger.endings import Ending, read_ending
from docket.model.states import ExecutionState
from docket.storage.records import read_task

from .desk import Desk, completed, ended

DONE, LOST, KEPT, CANCELLED = Answer.DONE, Answer.LOST, Answer.KEPT, Answer.CANCELLED


async def test_a_finished_task_keeps_its_times_its_worker_its_result_and_its_progress(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    before = await desk.ledger.get("k")
    assert before.run is not None
    (progress,) = await desk.ledger.progress([ProgressChange("k", run.epoch, message='"all of it"')])
    settlement = completed(run)
    settlement.item = settlement.item._replace(tail=Ending("name", "words", 1, b"value").pack())
    assert await desk.settle(settlement) == [DONE]

    look = await desk.ledger.get("k")
    assert (look.task, look.run, look.progress) == (None, None, None)
    assert look.finished is not None
    assert look.finished.state is ExecutionState.COMPLETED
    assert look.finished.epoch == run.epoch
    assert look.finished.started_ms == before.run.started_ms
    assert look.finished.started_ms <= look.finished.completed_ms <= desk.now()
    assert look.finished.progress == progress
    assert read_ending(look.finished.tail) == Ending("name", "words", 1, b"value")
    desk.sound_books()


async def test_the_answer_tells_how_much_is_left(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("a", "b", "c")
    await desk.add("d", due_ms=desk.later())
    a, b, c = await desk.take(worker)
    assert (await desk.ledger.settle([completed(a)]))[0] == 3
    assert (await desk.ledger.settle([completed(b), completed(c)]))[0] == 1


async def test_a_repeated_settlement_answers_lost_and_changes_nothing(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    assert await desk.settle(completed(run), completed(run)) == [DONE, LOST]
    before = desk.books()
    for again in (completed(run), reschedule("k", run.epoch, attempt=2), hand_back("k", run.epoch)):
        assert await desk.settle(again) == [LOST]
    after = desk.sound_books()
    after.finished_ttl = before.finished_ttl
    assert after == before


@pytest.mark.parametrize("off", [-1, 1])
async def test_another_epoch_changes_nothing(desk: Desk, off: int) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    wrong = Delivery("k", b"", run.epoch + off)
    before = desk.books()
    answers = await desk.settle(completed(wrong), reschedule("k", wrong.epoch, attempt=2), hand_back("k", wrong.epoch))
    assert answers == [LOST] * 3
    assert await desk.ledger.progress([ProgressChange("k", wrong.epoch, add=1)]) == [Unwritten.LOST]
    assert await desk.acquire("k", wrong.epoch, [("L", 1)]) == 0
    assert desk.books() == before


async def test_a_worker_that_was_given_up_changes_nothing(desk: Desk) -> None:
    paused, other = await desk.hire(), await desk.hire()
    stale = await desk.start(paused, "k")
    desk.bury(paused)
    (run,) = await desk.take(other)
    assert await desk.settle(completed(stale)) == [LOST]
    assert desk.sound_books().running["k"].worker == other
    assert await desk.settle(completed(run)) == [DONE]


async def test_one_batch_may_end_runs_in_every_way(desk: Desk) -> None:
    worker = await desk.hire()
    keys = ["completed", "failed", "retried", "again", "back", "back later", "nowhere to go"]
    await desk.add(*keys)
    runs = dict(zip(keys, await desk.take(worker), strict=True))
    epoch = {key: run.epoch for key, run in runs.items()}
    answers = await desk.settle(
        completed(runs["completed"]),
        ended(runs["failed"], ExecutionState.FAILED, dead_letter=True),
        reschedule("retried", epoch["retried"], attempt=2, delay_ms=60_000),
        reschedule("again", epoch["again"], attempt=2),
        hand_back("back", epoch["back"]),
        hand_back("back later", epoch["back later"], delay_ms=60_000),
        unknown_function("nowhere to go", epoch["nowhere to go"], only_if_known=True),
    )
    assert answers == [DONE] * 6 + [KEPT]
    books = desk.sound_books()
    assert {k: r.state.value for k, r in books.finished.items()} == {"completed": "completed", "failed": "failed"}
    assert books.dead == {"failed"}
    assert set(books.queue) == {"retried", "back later"}
    assert [e.key for e in books.streams["front"].entries] == ["back"]
    assert "again" in [e.key for e in books.streams["stream"].entries]
    assert set(books.running) == {"nowhere to go"}


async def test_a_retry_counts_on_keeps_its_call_and_forgets_its_losses(desk: Desk) -> None:
    for _ in range(2):
        worker = await desk.hire()
        await desk.add("k", call=encode_call((7,), {}))
        await desk.take(worker)
        desk.bury(worker)
    worker = await desk.hire()
    (run,) = await desk.take(worker)
    assert read_task(run.record).losses == 2
    before = desk.now()
    await desk.settle(reschedule("k", run.epoch, attempt=2, delay_ms=60_000))
    task = desk.sound_books().tasks["k"]
    assert (task.attempt, task.losses, task.generation) == (2, 0, 1)
    assert decode_call(task.call)[0] == (7,)
    assert before + 60_000 <= task.due_ms <= desk.now() + 60_000


async def test_a_task_may_go_on_with_another_call_at_a_given_time(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    due, call = desk.later(), encode_call((2,), {})
    await desk.settle(reschedule("k", run.epoch, attempt=1, due_ms=due, function_name="g", call=call))
    task = desk.sound_books().tasks["k"]
    assert (task.function_name, task.call, task.due_ms) == ("g", call, due)


async def test_a_time_that_has_passed_means_now(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    await desk.settle(reschedule("k", run.epoch, attempt=2, due_ms=desk.now() - 60_000))
    assert [again.key for again in await desk.take(worker)] == ["k"]


async def test_a_cancel_that_came_too_late_ends_what_would_have_followed(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("finished", "retried", "handed back")
    runs = await desk.take(worker)
    for run in runs:
        assert await desk.ledger.cancel(run.key) == 2
    answers = await desk.settle(
        completed(runs[0]),
        reschedule("retried", runs[1].epoch, attempt=2, delay_ms=60_000),
        hand_back("handed back", runs[2].epoch),
    )
    assert answers == [DONE, CANCELLED, CANCELLED]
    books = desk.sound_books()
    assert not books.tasks
    assert {k: r.state.value for k, r in books.finished.items()} == {
        "finished": "completed",
        "retried": "cancelled",
        "handed back": "cancelled",
    }


async def test_progress_is_gone_with_the_run_that_wrote_it(desk: Desk) -> None:
    worker = await desk.hire()
    keys = ["retried", "back", "done", "parked", "lost"]
    await desk.add("holder", *keys)
    holder, *rest = await desk.take(worker)
    await desk.acquire("holder", holder.epoch, [("L", 1)])
    runs = {run.key: run for run in rest}
    changes = [ProgressChange(k, run.epoch, add=1) for k, run in runs.items()]
    assert all(isinstance(answer, bytes) for answer in await desk.ledger.progress(changes))
    await desk.settle(
        reschedule("retried", runs["retried"].epoch, attempt=2),
        hand_back("back", runs["back"].epoch),
        completed(runs["done"]),
    )
    assert await desk.acquire("parked", runs["parked"].epoch, [("L", 1)]) == 2
    assert set(desk.sound_books().progress) == {"lost"}
    desk.bury(worker)
    assert not desk.sound_books().progress


async def test_dead_letters_stay_when_the_finished_record_expires(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    await desk.settle(ended(run, ExecutionState.FAILED, ttl_ms=0, dead_letter=True))
    books = desk.sound_books()
    assert not books.finished
    assert books.dead == {"k"}


async def test_only_the_newest_dead_letters_are_kept(desk: Desk) -> None:
    keys = desk.ledger.keys
    pipe = desk.client.pipeline()
    for number in range(10_000):
        pipe.zadd(keys.dead, {f"old {number}": number})
        pipe.hset(keys.dead_records, f"old {number}", b"x")
    pipe.execute()
    worker = await desk.hire()
    await desk.add("a", "b")
    await desk.settle(*(ended(run, ExecutionState.FAILED, dead_letter=True) for run in await desk.take(worker)))
    books = desk.sound_books()
    assert len(books.dead) == 10_000
    assert {"a", "b", "old 2"} <= books.dead
    assert "old 1" not in books.dead


def test_bytes_that_are_no_ending_are_told_apart() -> None:
    with pytest.raises(Undecodable):
        read_ending(b"\xc1")
