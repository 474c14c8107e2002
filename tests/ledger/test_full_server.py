"""A server that is out of memory: no new work, but everything that helps it to become less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from docket.errors import ServerFull
from docket.ledger import ProgressChange, SettleResult, requeue, reschedule
from docket.ledger.payloads import call_payload, result_payload
from docket.model.states import ExecutionState

from .ledger_client import LedgerClient, completed, new_task

DONE = SettleResult.DONE


@contextmanager
def full(ledger_client: LedgerClient) -> Iterator[None]:
    """The server refuses whatever needs memory."""
    ledger_client.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        ledger_client.client.config_set("maxmemory", 0)


@pytest.mark.parametrize("later", [False, True], ids=["ready", "scheduled"])
@pytest.mark.parametrize("known", [False, True], ids=["first use", "in use"])
async def test_add_says_so_and_nothing_is_half_written(ledger_client: LedgerClient, later: bool, known: bool) -> None:
    if known:
        await ledger_client.add("other")
    before = ledger_client.stored_state()
    due = ledger_client.later() if later else 0
    with full(ledger_client), pytest.raises(ServerFull):
        await ledger_client.ledger.tasks.enqueue([new_task(f"{n}", due_ms=due) for n in range(10)])
    assert ledger_client.checked_state() == before
    assert [r.scheduled for r in await ledger_client.add("0")] == [True]


@pytest.mark.parametrize("first", ["add", "replace"])
@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "parked"])
async def test_a_batch_with_a_replacement_is_written_whole_or_not_at_all(
    ledger_client: LedgerClient, first: str, state: str
) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k", due_ms=ledger_client.later() if state == "scheduled" else 0)
    if state in ("running", "parked"):
        (run,) = await ledger_client.take(worker)
        if state == "parked":
            assert await ledger_client.acquire("k", run.epoch, [("L", 0)]) == 2
    before = ledger_client.checked_state()
    batch = [new_task("new"), new_task("k", replace=True)]
    written = True
    with full(ledger_client):
        try:
            await ledger_client.ledger.tasks.enqueue(batch if first == "add" else batch[::-1])
        except ServerFull:
            written = False
    stored_state = ledger_client.checked_state()
    if written:
        assert set(stored_state.tasks) == {"k", "new"}
        assert stored_state.tasks["k"].generation == 2
    else:
        assert stored_state == before


async def test_work_is_taken_settled_renewed_and_cancelled_as_ever(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*(f"t{n}" for n in range(8)))
    await ledger_client.add("later", due_ms=ledger_client.later())
    ledger_client.fall_due("later")
    with full(ledger_client):
        runs = {run.key: run for run in await ledger_client.take(worker, 6)}
        more = await ledger_client.claim(worker, ledger_client.read(worker, 1))
        assert [run.key for run in more or []] == ["t6"]
        assert not ledger_client.renew(worker).lost
        assert await ledger_client.ledger.tasks.cancel("t0") == 2
        assert ledger_client.renew(worker).cancel_requests == [(runs["t0"].epoch, "t0")]
        assert await ledger_client.ledger.tasks.cancel("t7") == 1
        assert (await ledger_client.ledger.tasks.stage())[0] == 1
        (written,) = await ledger_client.ledger.tasks.progress([ProgressChange("t1", runs["t1"].epoch, add=1)])
        assert isinstance(written, bytes)
        assert await ledger_client.acquire("t1", runs["t1"].epoch, [("L", 1)]) == 1
        assert await ledger_client.acquire("t2", runs["t2"].epoch, [("L", 1)]) == 2
        answers = await ledger_client.settle(
            completed(runs["t0"]),
            completed(runs["t1"]),
            reschedule("t3", runs["t3"].epoch, attempt=2, delay_ms=60_000),
            requeue("t4", runs["t4"].epoch),
            completed(runs["t5"], dead_letter=True),
        )
        assert answers == [DONE] * 5
        assert await ledger_client.ledger.tasks.clear() == 4
        assert await ledger_client.settle(*(completed(run) for run in more or [])) == [DONE]
        assert await ledger_client.ledger.fleet.leave(worker) is False
    stored_state = ledger_client.checked_state()
    assert stored_state.leftovers == set()
    states = {key: record.state for key, record in stored_state.finished.items()}
    assert states["t0"] is states["t1"] is ExecutionState.COMPLETED
    assert states["t7"] is states["t3"] is ExecutionState.CANCELLED


@pytest.mark.parametrize("first_write", ["take", "claim", "settle", "cancel", "stage", "clear", "sweep", "reclaim"])
async def test_each_verb_works_as_the_first_on_a_full_server(ledger_client: LedgerClient, first_write: str) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("later", due_ms=ledger_client.later())
    ledger_client.fall_due("later")
    await ledger_client.add("running", "delivered", "waiting")
    (run,) = await ledger_client.take(worker, 1)
    entries = ledger_client.read(worker, 1)
    if first_write == "reclaim":
        ledger_client.end_lease(worker)
    with full(ledger_client):
        if first_write == "take":
            assert [r.key for r in await ledger_client.take(worker)] == ["waiting"]
        elif first_write == "claim":
            assert [r.key for r in await ledger_client.claim(worker, entries) or []] == ["delivered"]
        elif first_write == "settle":
            assert await ledger_client.settle(completed(run)) == [DONE]
        elif first_write == "cancel":
            assert await ledger_client.ledger.tasks.cancel("running") == 2
        elif first_write == "stage":
            assert (await ledger_client.ledger.tasks.stage())[0] == 1
        elif first_write == "clear":
            assert await ledger_client.ledger.tasks.clear() == 3
        elif first_write == "sweep":
            ledger_client.client.xack(ledger_client.ledger.keys.stream, "docket-workers", entries[0].id)
            assert ledger_client.sweep() == 1
        else:
            assert ledger_client.reclaim()[:2] == [1, 2]
    ledger_client.checked_state()


async def test_a_new_worker_may_come_to_help(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k")
    with full(ledger_client):
        worker = await ledger_client.hire()
        (run,) = await ledger_client.take(worker)
        assert await ledger_client.settle(completed(run)) == [DONE]
    ledger_client.checked_state()


async def test_the_work_of_the_dead_is_recovered_and_buried(ledger_client: LedgerClient) -> None:
    await ledger_client.add("poison")
    for _ in range(3):
        with full(ledger_client):
            worker = await ledger_client.hire()
            await ledger_client.take(worker)
        ledger_client.end_lease(worker)
        with full(ledger_client):
            assert ledger_client.reclaim()[0] == 1
    stored_state = ledger_client.checked_state()
    assert stored_state.dead == {"poison"}
    assert not stored_state.tasks


async def test_large_results_are_stored_and_large_arguments_are_refused(ledger_client: LedgerClient) -> None:
    """A result comes with a settlement that makes room;
    without it, runs would hold their slots for ever."""
    large = bytes(200_000)
    with full(ledger_client):
        await ledger_client.ledger.payloads.store(result_payload(1, large, ttl_ms=60_000))
        await ledger_client.ledger.payloads.store(call_payload(large, ends_a_run=True))
        with pytest.raises(ServerFull):
            await ledger_client.ledger.payloads.store(call_payload(large))
    assert await ledger_client.ledger.payloads.fetch("r1") == large
