"""A server that is out of memory: no new work, but everything that helps it to become less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from docket.errors import ServerFull
from docket.ledger import Answer, ProgressChange, hand_back, reschedule
from docket.ledger.payloads import call_payload, result_payload
from docket.model.states import ExecutionState

from .desk import Desk, completed, order

DONE = Answer.DONE


@contextmanager
def full(desk: Desk) -> Iterator[None]:
    """The server refuses whatever needs memory."""
    desk.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        desk.client.config_set("maxmemory", 0)


@pytest.mark.parametrize("later", [False, True], ids=["ready", "scheduled"])
@pytest.mark.parametrize("known", [False, True], ids=["first use", "in use"])
async def test_add_says_so_and_nothing_is_half_written(desk: Desk, later: bool, known: bool) -> None:
    if known:
        await desk.add("other")
    before = desk.books()
    due = desk.later() if later else 0
    with full(desk), pytest.raises(ServerFull):
        await desk.ledger.enqueue([order(f"{n}", due_ms=due) for n in range(10)])
    assert desk.sound_books() == before
    assert [r.scheduled for r in await desk.add("0")] == [True]


@pytest.mark.parametrize("first", ["add", "replace"])
@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "parked"])
async def test_a_batch_with_a_replacement_is_written_whole_or_not_at_all(desk: Desk, first: str, state: str) -> None:
    worker = await desk.hire()
    await desk.add("k", due_ms=desk.later() if state == "scheduled" else 0)
    if state in ("running", "parked"):
        (run,) = await desk.take(worker)
        if state == "parked":
            assert await desk.acquire("k", run.epoch, [("L", 0)]) == 2
    before = desk.sound_books()
    batch = [order("new"), order("k", replace=True)]
    written = True
    with full(desk):
        try:
            await desk.ledger.enqueue(batch if first == "add" else batch[::-1])
        except ServerFull:
            written = False
    books = desk.sound_books()
    if written:
        assert set(books.tasks) == {"k", "new"}
        assert books.tasks["k"].generation == 2
    else:
        assert books == before


async def test_work_is_taken_settled_renewed_and_cancelled_as_ever(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*(f"t{n}" for n in range(8)))
    await desk.add("later", due_ms=desk.later())
    desk.fall_due("later")
    with full(desk):
        runs = {run.key: run for run in await desk.take(worker, 6)}
        more = await desk.claim(worker, desk.read(worker, 1))
        assert [run.key for run in more or []] == ["t6"]
        assert not desk.renew(worker).lost
        assert await desk.ledger.cancel("t0") == 2
        assert desk.renew(worker).orders == [(runs["t0"].epoch, "t0")]
        assert await desk.ledger.cancel("t7") == 1
        assert (await desk.ledger.stage())[0] == 1
        (written,) = await desk.ledger.progress([ProgressChange("t1", runs["t1"].epoch, add=1)])
        assert isinstance(written, bytes)
        assert await desk.acquire("t1", runs["t1"].epoch, [("L", 1)]) == 1
        assert await desk.acquire("t2", runs["t2"].epoch, [("L", 1)]) == 2
        answers = await desk.settle(
            completed(runs["t0"]),
            completed(runs["t1"]),
            reschedule("t3", runs["t3"].epoch, attempt=2, delay_ms=60_000),
            hand_back("t4", runs["t4"].epoch),
            completed(runs["t5"], dead_letter=True),
        )
        assert answers == [DONE] * 5
        assert await desk.ledger.clear() == 4
        assert await desk.settle(*(completed(run) for run in more or [])) == [DONE]
        assert await desk.ledger.leave(worker) is False
    books = desk.sound_books()
    assert books.leftovers == set()
    states = {key: record.state for key, record in books.finished.items()}
    assert states["t0"] is states["t1"] is ExecutionState.COMPLETED
    assert states["t7"] is states["t3"] is ExecutionState.CANCELLED


@pytest.mark.parametrize("first_write", ["take", "claim", "settle", "cancel", "stage", "clear", "sweep", "reclaim"])
async def test_each_verb_works_as_the_first_on_a_full_server(desk: Desk, first_write: str) -> None:
    worker = await desk.hire()
    await desk.add("later", due_ms=desk.later())
    desk.fall_due("later")
    await desk.add("running", "delivered", "waiting")
    (run,) = await desk.take(worker, 1)
    entries = desk.read(worker, 1)
    if first_write == "reclaim":
        desk.end_lease(worker)
    with full(desk):
        if first_write == "take":
            assert [r.key for r in await desk.take(worker)] == ["waiting"]
        elif first_write == "claim":
            assert [r.key for r in await desk.claim(worker, entries) or []] == ["delivered"]
        elif first_write == "settle":
            assert await desk.settle(completed(run)) == [DONE]
        elif first_write == "cancel":
            assert await desk.ledger.cancel("running") == 2
        elif first_write == "stage":
            assert (await desk.ledger.stage())[0] == 1
        elif first_write == "clear":
            assert await desk.ledger.clear() == 3
        elif first_write == "sweep":
            desk.client.xack(desk.ledger.keys.stream, "docket-workers", entries[0].id)
            assert desk.sweep() == 1
        else:
            assert desk.reclaim()[:2] == [1, 2]
    desk.sound_books()


async def test_a_new_worker_may_come_to_help(desk: Desk) -> None:
    await desk.add("k")
    with full(desk):
        worker = await desk.hire()
        (run,) = await desk.take(worker)
        assert await desk.settle(completed(run)) == [DONE]
    desk.sound_books()


async def test_the_work_of_the_dead_is_recovered_and_buried(desk: Desk) -> None:
    await desk.add("poison")
    for _ in range(3):
        with full(desk):
            worker = await desk.hire()
            await desk.take(worker)
        desk.end_lease(worker)
        with full(desk):
            assert desk.reclaim()[0] == 1
    books = desk.sound_books()
    assert books.dead == {"poison"}
    assert not books.tasks


async def test_large_results_are_stored_and_large_arguments_are_refused(desk: Desk) -> None:
    """A result comes with a settlement that makes room; without it, runs would hold their slots for ever."""
    large = bytes(200_000)
    with full(desk):
        await desk.ledger.payloads.store(result_payload(1, large, ttl_ms=60_000))
        await desk.ledger.payloads.store(call_payload(large, ends_a_run=True))
        with pytest.raises(ServerFull):
            await desk.ledger.payloads.store(call_payload(large))
    assert await desk.ledger.payloads.fetch("r1") == large
