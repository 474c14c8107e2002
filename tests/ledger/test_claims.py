"""From delivery to run: who may start a task, and under which epoch."""

from __future__ import annotations

from docket.ledger import Answer, Entry
from docket.ledger.tasks import BATCH

from .desk import Desk, completed, order


async def test_a_worker_without_a_lease_gets_nothing_and_is_told(desk: Desk) -> None:
    await desk.add("k")
    before = desk.books()
    assert await desk.ledger.take("stranger~1", '"stranger"', 10) is None
    assert desk.books() == before


async def test_a_worker_that_was_given_up_gets_nothing_until_it_has_a_new_id(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("k")
    desk.bury(worker)
    assert await desk.ledger.take(worker, '"w"', 10) is None
    assert desk.renew(worker).lost
    assert await desk.ledger.take(worker, '"w"', 10) is None
    assert [run.key for run in await desk.take(await desk.hire())] == ["k"]


async def test_what_a_lost_worker_was_still_sent_goes_to_another(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("k")
    desk.bury(worker)
    entries = desk.read(worker)
    assert await desk.claim(worker, entries) is None
    assert await desk.take(other) == []
    desk.reclaim()
    assert [run.key for run in await desk.take(other)] == ["k"]
    books = desk.sound_books()
    assert books.tasks["k"].losses == 0
    assert worker not in books.consumers


async def test_asking_for_nothing_takes_nothing(desk: Desk) -> None:
    worker = await desk.hire()
    first = await desk.hire()
    await desk.add("front", "stream")
    await desk.take(first, 1)
    desk.bury(first)
    assert [e.key for e in desk.books().streams["front"].entries] == ["front"]
    for count in (0, -1):
        assert await desk.take(worker, count) == []
    assert not desk.sound_books().running


async def test_one_call_claims_no_more_than_a_batch(desk: Desk) -> None:
    worker = await desk.hire()
    for batch in range(2):
        await desk.ledger.enqueue([order(f"{batch} {n}", fresh=True) for n in range(500)])
    assert len(await desk.take(worker, 100_000)) == BATCH


async def test_what_was_put_back_goes_before_what_is_new(desk: Desk) -> None:
    worker, other = await desk.hire(), await desk.hire()
    await desk.add("old 1", "old 2")
    await desk.take(worker)
    await desk.add("new")
    desk.bury(worker)
    assert [run.key for run in await desk.take(other, 2)] == ["old 1", "old 2"]
    assert [run.key for run in await desk.take(other)] == ["new"]


async def test_epochs_grow_over_all_keys_and_survive_an_empty_server(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add(*(f"{n}" for n in range(50)))
    epochs = [run.epoch for run in await desk.take(worker, 20)] + [run.epoch for run in await desk.take(worker, 30)]
    desk.client.flushdb()
    worker = await desk.hire()
    epochs.append((await desk.start(worker, "after")).epoch)
    assert epochs == sorted(set(epochs))


async def test_epochs_grow_also_when_the_clock_was_far_ahead(desk: Desk) -> None:
    worker = await desk.hire()
    ahead = 4_000_000_000_000_000
    desk.client.set(desk.ledger.keys.key("epoch"), ahead)
    assert (await desk.start(worker, "k")).epoch == ahead + 1


async def test_a_repeated_claim_is_the_same_run(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("a", "b")
    entries = desk.read(worker)
    first = await desk.claim(worker, entries)
    before = desk.books()
    again = await desk.claim(worker, entries)
    assert first == again
    assert len(first or []) == 2
    after = desk.sound_books()
    after.epoch = before.epoch
    assert after == before


async def test_a_repeated_claim_does_not_bring_back_what_was_settled(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("a")
    entries = desk.read(worker)
    (run,) = await desk.claim(worker, entries) or []
    await desk.settle(completed(run))
    assert await desk.claim(worker, entries) == []
    await desk.add("a")
    assert await desk.claim(worker, entries) == []
    assert len(desk.sound_books().entries) == 1


async def test_the_loser_of_a_claim_leaves_the_run_to_its_owner(desk: Desk) -> None:
    """Two workers hold the same entry, since the group was lost and made anew between their reads."""
    first, second = await desk.hire(), await desk.hire()
    await desk.add("a")
    entries = desk.read(first)
    desk.client.xgroup_destroy(desk.ledger.keys.stream, "docket-workers")
    (run,) = await desk.take(second)
    assert await desk.claim(first, entries) == []
    books = desk.sound_books()
    assert books.running["a"].worker == second
    assert [entry.holder for entry in books.entries] == [second]
    assert await desk.settle(completed(run)) == [Answer.DONE]


async def test_a_delivery_whose_answer_was_lost_is_found_and_claimed(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("known", "lost 1", "lost 2")
    (known,) = await desk.take(worker, 1)
    desk.read(worker, 1)
    lost_claim = await desk.take(worker, 1)

    first = await desk.ledger.unknown_deliveries(worker, [known.epoch], [])
    assert [(e.key, e.epoch, e.seen_before) for e in first] == [
        (b"lost 1", 0, False),
        (b"lost 2", lost_claim[0].epoch, False),
    ]
    second = await desk.ledger.unknown_deliveries(worker, [known.epoch], first)
    assert [s.seen_before for s in second] == [True, True]
    runs = await desk.claim(worker, list(second))
    assert runs is not None
    assert [run.key for run in runs] == ["lost 1", "lost 2"]
    assert runs[1].epoch == lost_claim[0].epoch
    assert await desk.ledger.unknown_deliveries(worker, [known.epoch, *(run.epoch for run in runs)], []) == []


async def test_a_delivery_is_known_by_its_run_and_not_by_its_key(desk: Desk) -> None:
    """A worker still has the run that was replaced; the delivery of the replacement was lost."""
    worker = await desk.hire()
    await desk.add("k")
    (replaced,) = await desk.take(worker)
    await desk.ledger.enqueue([order("k", replace=True)])
    (lost,) = await desk.take(worker)
    found = await desk.ledger.unknown_deliveries(worker, [replaced.epoch], [])
    assert [(entry.key, entry.epoch) for entry in found] == [(b"k", lost.epoch)]


async def test_entries_of_the_two_streams_with_the_same_id_are_told_apart(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("k")
    (id,) = (entry.id for entry in desk.read(worker))
    desk.client.xadd(desk.ledger.keys.front, {"k": "other"}, id=id)
    found = await desk.ledger.unknown_deliveries(worker, [], [Entry(True, id, b"other")])
    assert [(entry.from_front, entry.seen_before) for entry in found] == [(False, False)]


async def test_an_entry_that_is_not_ours_is_set_aside_and_harms_nobody(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("a")
    id = desk.client.xadd(desk.ledger.keys.stream, {"stranger": "x"})
    gone = desk.client.xadd(desk.ledger.keys.stream, {"k": "no such task"})
    await desk.add("b")
    assert [run.key for run in await desk.take(worker)] == ["a", "b"]
    books = desk.sound_books()
    assert {id.decode(), gone.decode()}.isdisjoint(entry.id for entry in books.entries)
    kept = desk.client.xrange(desk.ledger.keys.key("foreign"))
    assert [fields for _, fields in kept] == [{b"stranger": b"x"}]


async def test_a_claim_of_an_entry_that_was_never_there_does_nothing(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("a")
    assert await desk.claim(worker, [Entry(False, "1-1", b"a"), Entry(True, "1-1", b"x")]) == []
    assert not desk.sound_books().running


async def test_what_a_blocked_worker_was_sent_and_has_not_claimed_goes_to_another(desk: Desk) -> None:
    blocked, other = await desk.hire(), await desk.hire()
    run = await desk.start(blocked, "running")
    await desk.add("unread 1", "unread 2")
    unread = desk.read(blocked)
    assert len(unread) == 2

    assert desk.ledger.release_unread(desk.client, blocked, 1, None) == 2
    assert [delivery.key for delivery in await desk.take(other)] == ["unread 1", "unread 2"]
    assert await desk.claim(blocked, unread) == []
    assert desk.ledger.release_unread(desk.client, blocked, 1, None) == 0
    assert desk.sound_books().running["running"].epoch == run.epoch
    assert {task.losses for task in desk.books().tasks.values()} == {0}
