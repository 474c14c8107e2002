"""From delivery to run: who may start a task, and under which epoch."""

from __future__ import annotations

from docket.ledger import Entry, SettleResult
from docket.ledger.tasks import BATCH

from .ledger_client import LedgerClient, completed, new_task


async def test_a_worker_without_a_lease_gets_nothing_and_is_told(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k")
    before = ledger_client.stored_state()
    assert await ledger_client.ledger.deliveries.take("stranger~1", '"stranger"', 10) is None
    assert ledger_client.stored_state() == before


async def test_a_worker_that_was_given_up_gets_nothing_until_it_has_a_new_id(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    ledger_client.bury(worker)
    assert await ledger_client.ledger.deliveries.take(worker, '"w"', 10) is None
    assert ledger_client.renew(worker).lost
    assert await ledger_client.ledger.deliveries.take(worker, '"w"', 10) is None
    assert [run.key for run in await ledger_client.take(await ledger_client.hire())] == ["k"]


async def test_what_a_lost_worker_was_still_sent_goes_to_another(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("k")
    ledger_client.bury(worker)
    entries = ledger_client.read(worker)
    assert await ledger_client.claim(worker, entries) is None
    assert await ledger_client.take(other) == []
    ledger_client.reclaim()
    assert [run.key for run in await ledger_client.take(other)] == ["k"]
    stored_state = ledger_client.checked_state()
    assert stored_state.tasks["k"].losses == 0
    assert worker not in stored_state.consumers


async def test_asking_for_nothing_takes_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    first = await ledger_client.hire()
    await ledger_client.add("front", "stream")
    await ledger_client.take(first, 1)
    ledger_client.bury(first)
    assert [e.key for e in ledger_client.stored_state().streams["front"].entries] == ["front"]
    for count in (0, -1):
        assert await ledger_client.take(worker, count) == []
    assert not ledger_client.checked_state().running


async def test_one_call_claims_no_more_than_a_batch(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for batch in range(2):
        await ledger_client.ledger.tasks.enqueue([new_task(f"{batch} {n}", fresh=True) for n in range(500)])
    assert len(await ledger_client.take(worker, 100_000)) == BATCH


async def test_what_was_put_back_goes_before_what_is_new(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("old 1", "old 2")
    await ledger_client.take(worker)
    await ledger_client.add("new")
    ledger_client.bury(worker)
    assert [run.key for run in await ledger_client.take(other, 2)] == ["old 1", "old 2"]
    assert [run.key for run in await ledger_client.take(other)] == ["new"]


async def test_epochs_grow_over_all_keys_and_survive_an_empty_server(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*(f"{n}" for n in range(50)))
    epochs = [run.epoch for run in await ledger_client.take(worker, 20)] + [
        run.epoch for run in await ledger_client.take(worker, 30)
    ]
    ledger_client.client.flushdb()
    worker = await ledger_client.hire()
    epochs.append((await ledger_client.start(worker, "after")).epoch)
    assert epochs == sorted(set(epochs))


async def test_epochs_grow_also_when_the_clock_was_far_ahead(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    ahead = 4_000_000_000_000_000
    ledger_client.client.set(ledger_client.ledger.keys.key("epoch"), ahead)
    assert (await ledger_client.start(worker, "k")).epoch == ahead + 1


async def test_a_repeated_claim_is_the_same_run(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a", "b")
    entries = ledger_client.read(worker)
    first = await ledger_client.claim(worker, entries)
    before = ledger_client.stored_state()
    again = await ledger_client.claim(worker, entries)
    assert first == again
    assert len(first or []) == 2
    after = ledger_client.checked_state()
    after.epoch = before.epoch
    assert after == before


async def test_a_repeated_claim_does_not_bring_back_what_was_settled(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a")
    entries = ledger_client.read(worker)
    (run,) = await ledger_client.claim(worker, entries) or []
    await ledger_client.settle(completed(run))
    assert await ledger_client.claim(worker, entries) == []
    await ledger_client.add("a")
    assert await ledger_client.claim(worker, entries) == []
    assert len(ledger_client.checked_state().entries) == 1


async def test_the_loser_of_a_claim_leaves_the_run_to_its_owner(ledger_client: LedgerClient) -> None:
    """Two workers hold the same entry, since the group
    was lost and created again between their reads."""
    first, second = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("a")
    entries = ledger_client.read(first)
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, "docket-workers")
    (run,) = await ledger_client.take(second)
    assert await ledger_client.claim(first, entries) == []
    stored_state = ledger_client.checked_state()
    assert stored_state.running["a"].worker == second
    assert [entry.holder for entry in stored_state.entries] == [second]
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]


async def test_a_delivery_whose_answer_was_lost_is_found_and_claimed(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("known", "lost 1", "lost 2")
    (known,) = await ledger_client.take(worker, 1)
    ledger_client.read(worker, 1)
    lost_claim = await ledger_client.take(worker, 1)

    first = await ledger_client.ledger.deliveries.unknown_deliveries(worker, [known.epoch], [])
    assert [(e.key, e.epoch, e.seen_before) for e in first] == [
        (b"lost 1", 0, False),
        (b"lost 2", lost_claim[0].epoch, False),
    ]
    second = await ledger_client.ledger.deliveries.unknown_deliveries(worker, [known.epoch], first)
    assert [s.seen_before for s in second] == [True, True]
    runs = await ledger_client.claim(worker, list(second))
    assert runs is not None
    assert [run.key for run in runs] == ["lost 1", "lost 2"]
    assert runs[1].epoch == lost_claim[0].epoch
    assert (
        await ledger_client.ledger.deliveries.unknown_deliveries(
            worker, [known.epoch, *(run.epoch for run in runs)], []
        )
        == []
    )


async def test_a_delivery_is_known_by_its_run_and_not_by_its_key(ledger_client: LedgerClient) -> None:
    """A worker still has the run that was replaced; the delivery of the replacement was lost."""
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    (replaced,) = await ledger_client.take(worker)
    await ledger_client.ledger.tasks.enqueue([new_task("k", replace=True)])
    (lost,) = await ledger_client.take(worker)
    found = await ledger_client.ledger.deliveries.unknown_deliveries(worker, [replaced.epoch], [])
    assert [(entry.key, entry.epoch) for entry in found] == [(b"k", lost.epoch)]


async def test_entries_of_the_two_streams_with_the_same_id_are_told_apart(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    (id,) = (entry.id for entry in ledger_client.read(worker))
    ledger_client.client.xadd(ledger_client.ledger.keys.front, {"k": "other"}, id=id)
    found = await ledger_client.ledger.deliveries.unknown_deliveries(worker, [], [Entry(True, id, b"other")])
    assert [(entry.from_front, entry.seen_before) for entry in found] == [(False, False)]


async def test_an_entry_that_is_not_ours_is_set_aside_and_harms_nobody(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a")
    id = ledger_client.client.xadd(ledger_client.ledger.keys.stream, {"stranger": "x"})
    gone = ledger_client.client.xadd(ledger_client.ledger.keys.stream, {"k": "no such task"})
    await ledger_client.add("b")
    assert [run.key for run in await ledger_client.take(worker)] == ["a", "b"]
    stored_state = ledger_client.checked_state()
    assert {id.decode(), gone.decode()}.isdisjoint(entry.id for entry in stored_state.entries)
    kept = ledger_client.client.xrange(ledger_client.ledger.keys.key("foreign"))
    assert [fields for _, fields in kept] == [{b"stranger": b"x"}]


async def test_a_claim_of_an_entry_that_was_never_there_does_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a")
    assert await ledger_client.claim(worker, [Entry(False, "1-1", b"a"), Entry(True, "1-1", b"x")]) == []
    assert not ledger_client.checked_state().running


async def test_what_a_blocked_worker_was_sent_and_has_not_claimed_goes_to_another(ledger_client: LedgerClient) -> None:
    blocked, other = await ledger_client.hire(), await ledger_client.hire()
    run = await ledger_client.start(blocked, "running")
    await ledger_client.add("unread 1", "unread 2")
    unread = ledger_client.read(blocked)
    assert len(unread) == 2

    assert ledger_client.ledger.fleet.put_back_unclaimed(ledger_client.client, blocked, 1, None) == 2
    assert [delivery.key for delivery in await ledger_client.take(other)] == ["unread 1", "unread 2"]
    assert await ledger_client.claim(blocked, unread) == []
    assert ledger_client.ledger.fleet.put_back_unclaimed(ledger_client.client, blocked, 1, None) == 0
    assert ledger_client.checked_state().running["running"].epoch == run.epoch
    assert {task.losses for task in ledger_client.stored_state().tasks.values()} == {0}
