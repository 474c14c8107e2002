"""How a run ends: written down once, by the run that counts."""

from __future__ import annotations

import asyncio

import pytest

from docket.errors import Undecodable
from docket.ledger import Delivery, ProgressChange, SettleResult, Unwritten, requeue, reschedule, unknown_function
from docket.ledger.endings import Ending, read_ending
from docket.model.states import ExecutionState
from docket.storage.records import read_task
from tests.payloads import decode_call, encode_call

from .ledger_client import LedgerClient, completed, ended

DONE, LOST, KEPT, CANCELLED = SettleResult.DONE, SettleResult.LOST, SettleResult.KEPT, SettleResult.CANCELLED


async def test_a_finished_task_keeps_its_times_its_worker_its_result_and_its_progress(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    before = await ledger_client.ledger.tasks.get("k")
    assert before.run is not None
    (progress,) = await ledger_client.ledger.tasks.progress([ProgressChange("k", run.epoch, message='"all of it"')])
    settlement = completed(run)
    settlement.row = settlement.row._replace(tail=Ending("name", "words", 1, b"value").pack())
    assert await ledger_client.settle(settlement) == [DONE]

    look = await ledger_client.ledger.tasks.get("k")
    assert (look.task, look.run, look.progress) == (None, None, None)
    assert look.finished is not None
    assert look.finished.state is ExecutionState.COMPLETED
    assert look.finished.epoch == run.epoch
    assert look.finished.started_ms == before.run.started_ms
    assert look.finished.started_ms <= look.finished.completed_ms <= ledger_client.now()
    assert look.finished.progress == progress
    assert read_ending(look.finished.tail) == Ending("name", "words", 1, b"value")
    ledger_client.checked_state()


async def test_a_repeated_settlement_answers_lost_and_changes_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.settle(completed(run), completed(run)) == [DONE, LOST]
    before = ledger_client.stored_state()
    for again in (completed(run), reschedule("k", run.epoch, attempt=2), requeue("k", run.epoch)):
        assert await ledger_client.settle(again) == [LOST]
    after = ledger_client.checked_state()
    after.finished_ttl = before.finished_ttl
    assert after == before


@pytest.mark.parametrize("off", [-1, 1])
async def test_another_epoch_changes_nothing(ledger_client: LedgerClient, off: int) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    wrong = Delivery("k", b"", run.epoch + off)
    before = ledger_client.stored_state()
    answers = await ledger_client.settle(
        completed(wrong), reschedule("k", wrong.epoch, attempt=2), requeue("k", wrong.epoch)
    )
    assert answers == [LOST] * 3
    assert await ledger_client.ledger.tasks.progress([ProgressChange("k", wrong.epoch, add=1)]) == [Unwritten.LOST]
    assert await ledger_client.acquire("k", wrong.epoch, [("L", 1)]) == 0
    assert ledger_client.stored_state() == before


async def test_a_worker_that_was_given_up_changes_nothing(ledger_client: LedgerClient) -> None:
    paused, other = await ledger_client.hire(), await ledger_client.hire()
    stale = await ledger_client.start(paused, "k")
    ledger_client.bury(paused)
    (run,) = await ledger_client.take(other)
    assert await ledger_client.settle(completed(stale)) == [LOST]
    assert ledger_client.checked_state().running["k"].worker == other
    assert await ledger_client.settle(completed(run)) == [DONE]


async def test_one_batch_may_end_runs_in_every_way(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    keys = ["completed", "failed", "retried", "again", "back", "back later", "nowhere to go"]
    await ledger_client.add(*keys)
    runs = dict(zip(keys, await ledger_client.take(worker), strict=True))
    epoch = {key: run.epoch for key, run in runs.items()}
    answers = await ledger_client.settle(
        completed(runs["completed"]),
        ended(runs["failed"], ExecutionState.FAILED, dead_letter=True),
        reschedule("retried", epoch["retried"], attempt=2, delay_ms=60_000),
        reschedule("again", epoch["again"], attempt=2),
        requeue("back", epoch["back"]),
        requeue("back later", epoch["back later"], delay_ms=60_000),
        unknown_function("nowhere to go", epoch["nowhere to go"], only_if_known=True),
    )
    assert answers == [DONE] * 6 + [KEPT]
    stored_state = ledger_client.checked_state()
    assert {k: r.state.value for k, r in stored_state.finished.items()} == {
        "completed": "completed",
        "failed": "failed",
    }
    assert stored_state.dead == {"failed"}
    assert set(stored_state.schedule) == {"retried", "back later"}
    assert [e.key for e in stored_state.streams["front"].entries] == ["back"]
    assert "again" in [e.key for e in stored_state.streams["stream"].entries]
    assert set(stored_state.running) == {"nowhere to go"}


async def test_a_retry_counts_on_keeps_its_call_and_forgets_its_losses(ledger_client: LedgerClient) -> None:
    for _ in range(2):
        worker = await ledger_client.hire()
        await ledger_client.add("k", call=encode_call((7,), {}))
        await ledger_client.take(worker)
        ledger_client.bury(worker)
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    assert read_task(run.record).losses == 2
    before = ledger_client.now()
    await ledger_client.settle(reschedule("k", run.epoch, attempt=2, delay_ms=60_000))
    task = ledger_client.checked_state().tasks["k"]
    assert (task.attempt, task.losses, task.generation) == (2, 0, 1)
    assert decode_call(task.call)[0] == (7,)
    assert before + 60_000 <= task.due_ms <= ledger_client.now() + 60_000


async def test_a_task_may_go_on_with_another_call_at_a_given_time(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    due, call = ledger_client.later(), encode_call((2,), {})
    await ledger_client.settle(reschedule("k", run.epoch, attempt=1, due_ms=due, function_name="g", call=call))
    task = ledger_client.checked_state().tasks["k"]
    assert (task.function_name, task.call, task.due_ms) == ("g", call, due)


async def test_a_time_that_has_passed_means_now(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(reschedule("k", run.epoch, attempt=2, due_ms=ledger_client.now() - 60_000))
    assert [again.key for again in await ledger_client.take(worker)] == ["k"]


async def test_a_cancel_that_came_too_late_ends_what_would_have_followed(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("finished", "retried", "requeued")
    runs = await ledger_client.take(worker)
    for run in runs:
        assert await ledger_client.ledger.tasks.cancel(run.key) == 2
    answers = await ledger_client.settle(
        completed(runs[0]),
        reschedule("retried", runs[1].epoch, attempt=2, delay_ms=60_000),
        requeue("requeued", runs[2].epoch),
    )
    assert answers == [DONE, CANCELLED, CANCELLED]
    stored_state = ledger_client.checked_state()
    assert not stored_state.tasks
    assert {k: r.state.value for k, r in stored_state.finished.items()} == {
        "finished": "completed",
        "retried": "cancelled",
        "requeued": "cancelled",
    }


async def test_progress_is_gone_with_the_run_that_wrote_it(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    keys = ["retried", "back", "done", "parked", "lost"]
    await ledger_client.add("holder", *keys)
    holder, *rest = await ledger_client.take(worker)
    await ledger_client.acquire("holder", holder.epoch, [("L", 1)])
    runs = {run.key: run for run in rest}
    changes = [ProgressChange(k, run.epoch, add=1) for k, run in runs.items()]
    assert all(isinstance(answer, bytes) for answer in await ledger_client.ledger.tasks.progress(changes))
    await ledger_client.settle(
        reschedule("retried", runs["retried"].epoch, attempt=2),
        requeue("back", runs["back"].epoch),
        completed(runs["done"]),
    )
    assert await ledger_client.acquire("parked", runs["parked"].epoch, [("L", 1)]) == 2
    assert set(ledger_client.checked_state().progress) == {"lost"}
    ledger_client.bury(worker)
    assert not ledger_client.checked_state().progress


async def test_dead_letters_stay_when_the_finished_record_expires(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(ended(run, ExecutionState.FAILED, ttl_ms=0, dead_letter=True))
    stored_state = ledger_client.checked_state()
    assert not stored_state.finished
    assert stored_state.dead == {"k"}


def test_bytes_that_are_no_ending_are_told_apart() -> None:
    with pytest.raises(Undecodable):
        read_ending(b"\xc1")


async def test_runs_that_have_not_begun_are_requeued_from_a_thread(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("a", "b", "c")
    first, second, third = await ledger_client.take(worker, 3)
    server = ledger_client.ledger.server
    client = server.threaded_client(lambda: 5.0, ledger_client.ledger.keys.stream)
    runs = [(first.key, first.epoch), (second.key, second.epoch), ("gone", 1)]
    await asyncio.to_thread(ledger_client.ledger.tasks.requeue_blocking, client, worker, runs)

    # The event loop, which was blocked, requeues them once more.
    assert await ledger_client.settle(requeue(first.key, first.epoch)) == [SettleResult.LOST]
    assert [run.key for run in await ledger_client.take(other, 5)] == ["a", "b"]
    assert await ledger_client.settle(completed(third)) == [SettleResult.DONE]
    ledger_client.checked_state()
    client.close()
