"""What is ready goes straight to a worker that waits and has offered a slot, and is claimed as by its own take."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from docket.codec.packing import unpack_from_script
from docket.ledger import Answer, Delivery, KeptSlot, hand_back
from docket.ledger.values import OFFER_MS
from docket.ledger.workers import worker_id
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.records import read_task

from .books import GROUP
from .desk import LATE_MS, LEASE_MS, Desk, completed

LARGE = b"x" * 33_000
MOST_AT_ONCE = 8


class Channel:
    """A subscription; a message of its own tells where to stop."""

    END = b""

    def __init__(self, client: Any, name: bytes) -> None:
        self._client, self._name = client, name
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(name)
        assert self._pubsub.get_message(timeout=5) is not None

    def heard(self) -> list[bytes]:
        """Everything since the last time."""
        self._client.publish(self._name, self.END)
        messages: list[bytes] = []
        while True:
            message = self._pubsub.get_message(timeout=5)
            assert message is not None, "the last message never came"
            if message["data"] == self.END:
                return messages
            messages.append(message["data"])

    def close(self) -> None:
        self._pubsub.close()


class Waiting:
    """A worker that waits for work and listens for what it is handed."""

    def __init__(self, desk: Desk, id: str, channel: Channel | None) -> None:
        self.desk, self.id, self.channel = desk, id, channel

    async def take(self, count: int, *, offered: bool, last: int = 0) -> tuple[list[str], int | None]:
        """The keys, and what became of the slot that is kept for an offer."""
        kept = KeptSlot(offered, last)
        deliveries = await self.desk.ledger.take(self.id, '"w"', count, kept)
        assert deliveries is not None, "the worker has no lease"
        return [run.key for run in deliveries], kept.answer

    async def offer(self) -> None:
        assert await self.take(1, offered=False) == ([], 1)

    def handed(self) -> list[Delivery]:
        assert self.channel is not None
        deliveries: list[Delivery] = []
        for message in self.channel.heard():
            key, record, epoch, claimed_ms, _ = unpack_from_script(message)
            deliveries.append(Delivery(bytes_text(key), record, epoch, claimed_ms))
        return deliveries

    def handed_keys(self) -> list[str]:
        return [run.key for run in self.handed()]


Hire = Callable[..., Awaitable[Waiting]]


@pytest.fixture
def channels(desk: Desk) -> Iterator[Callable[[bytes], Channel]]:
    with ExitStack() as stack:

        def listen(name: bytes) -> Channel:
            channel = Channel(desk.client, name)
            stack.callback(channel.close)
            return channel

        yield listen


@pytest.fixture
def hire(desk: Desk, channels: Callable[[bytes], Channel]) -> Hire:
    """Puts a worker on the roster; it has not offered anything yet."""

    async def hire(id: str | None = None, *, listens: bool = True, lease: bool = True) -> Waiting:
        if id is None:
            id = await desk.hire() if lease else "stranger~1"
        elif lease:
            await desk.ledger.register(id, LEASE_MS, ["f"])
        return Waiting(desk, id, channels(desk.ledger.keys.hand_channel(id)) if listens else None)

    return hire


def offers(desk: Desk) -> dict[str, float]:
    """Until when whose offer stands."""
    return {id.decode(): until for id, until in desk.client.zrange(desk.ledger.keys.offers, 0, -1, withscores=True)}


def last_handed(desk: Desk) -> dict[str, int]:
    """The epoch of each worker's last hand-over."""
    return {id.decode(): int(epoch) for id, epoch in desk.client.hgetall(desk.ledger.keys.key("handed")).items()}


def set_offer(desk: Desk, worker: str, ms_from_now: int) -> None:
    desk.client.zadd(desk.ledger.keys.offers, {text_bytes(worker): desk.now() + ms_from_now})


def read_keys(desk: Desk, worker: str) -> list[str]:
    """What a blocked read would be given."""
    return [bytes_text(entry.key) for entry in desk.read(worker)]


# What a hand-over is


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_worker_that_offered_a_slot_is_handed_the_next_task(desk: Desk, hire: Hire, fresh: bool) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("k", fresh=fresh)
    (run,) = worker.handed()
    assert run.key == "k"
    assert read_task(run.record).function_name == "f"
    assert desk.client.hget(desk.ledger.keys.tasks, "k") == run.record
    assert last_handed(desk) == {worker.id: run.epoch}
    books = desk.sound_books()
    assert (books.running["k"].worker, books.running["k"].epoch) == (worker.id, run.epoch)
    assert [(entry.key, entry.holder) for entry in books.entries] == [("k", worker.id)]


async def test_what_was_handed_over_can_be_settled(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("k")
    (run,) = worker.handed()
    assert await desk.settle(completed(run)) == [Answer.DONE]
    assert not desk.sound_books().tasks


async def test_what_was_handed_over_is_not_read_by_anybody(desk: Desk, hire: Hire) -> None:
    worker, other = await hire(), await hire()
    await worker.offer()
    await desk.add("k")
    assert desk.read(other.id) == []
    assert desk.read(worker.id) == []


@pytest.mark.parametrize("name", ["w", 'host:80%3A 100% "é"', "a~b"])
async def test_the_event_of_a_hand_over_names_the_worker(
    desk: Desk, hire: Hire, channels: Callable[[bytes], Channel], name: str
) -> None:
    worker, events = await hire(worker_id(name, "1")), channels(desk.ledger.keys.task_channel("k"))
    await worker.offer()
    await desk.add("k")
    assert len(worker.handed()) == 1
    *_, event = map(json.loads, events.heard())
    assert (event["state"], event["worker"]) == ("running", name)


async def test_epochs_of_hand_overs_grow_with_all_others(desk: Desk, hire: Hire) -> None:
    worker, epochs = await hire(), list[int]()
    for key in "abc":
        epochs.append((await desk.start(worker.id, f"taken {key}")).epoch)
        await worker.offer()
        await desk.add(f"handed {key}")
        epochs += [run.epoch for run in worker.handed()]
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 6


async def test_a_scheduled_task_is_handed_over_when_it_is_due(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("k", due_ms=desk.later())
    assert worker.handed() == []
    desk.fall_due("k")
    assert (await desk.ledger.stage())[0] == 1
    assert worker.handed_keys() == ["k"]
    assert desk.sound_books().running["k"].worker == worker.id


# Who gets what


async def test_there_is_one_task_for_one_offer(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("a", "b")
    await desk.add("c")
    assert worker.handed_keys() == ["a"]
    assert read_keys(desk, worker.id) == ["b", "c"]


async def test_there_is_one_offer_for_one_task(desk: Desk, hire: Hire) -> None:
    workers = [await hire() for _ in range(3)]
    for worker in workers:
        await worker.offer()
    await desk.add("k")
    assert [key for worker in workers for key in worker.handed_keys()] == ["k"]
    assert len(offers(desk)) == 2


async def test_a_batch_goes_to_all_who_offered_and_the_rest_is_to_be_read(desk: Desk, hire: Hire) -> None:
    workers = [await hire() for _ in range(3)]
    for worker in workers:
        await worker.offer()
    await desk.add("a", "b", "c", "d")
    handed = [worker.handed_keys() for worker in workers]
    assert sorted(handed) == [["a"], ["b"], ["c"]]
    assert read_keys(desk, workers[0].id) == ["d"]
    desk.sound_books()


async def test_one_call_hands_over_no_more_than_a_few(desk: Desk, hire: Hire) -> None:
    workers = [await hire() for _ in range(MOST_AT_ONCE + 1)]
    for worker in workers:
        await worker.offer()
    await desk.add(*(f"{n}" for n in range(20)))
    assert sum(len(worker.handed()) for worker in workers) == MOST_AT_ONCE
    assert len(offers(desk)) == 1
    assert len(read_keys(desk, workers[0].id)) == 20 - MOST_AT_ONCE


async def test_the_oldest_task_is_handed_over_and_not_the_one_that_was_just_added(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    run = await desk.start(worker.id, "before")
    await desk.add("old")
    await desk.ledger.settle([completed(run)], worker.id)
    await desk.add("new")
    assert worker.handed_keys() == ["old"]
    assert read_keys(desk, worker.id) == ["new"]


async def test_no_more_is_handed_over_than_became_ready(desk: Desk, hire: Hire) -> None:
    workers = [await hire() for _ in range(2)]
    await desk.add("old 1", "old 2")
    for worker in workers:
        set_offer(desk, worker.id, OFFER_MS)
    await desk.add("new")
    assert [key for worker in workers for key in worker.handed_keys()] == ["old 1"]
    assert len(offers(desk)) == 1


async def test_an_entry_that_is_not_ours_is_dropped_and_the_offer_stands(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    desk.client.xadd(desk.ledger.keys.stream, {"stranger": "x"})
    await desk.add("k")
    assert worker.handed() == []
    assert list(offers(desk)) == [worker.id]
    assert read_keys(desk, worker.id) == ["k"]


async def test_a_task_that_is_already_there_is_not_handed_over_again(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("k")
    await worker.take(1, offered=True, last=worker.handed()[0].epoch)
    await desk.add("k")
    assert worker.handed() == []
    assert list(offers(desk)) == [worker.id]


# Who gets nothing


@pytest.mark.parametrize("missing", ["lease", "listener", "time"])
async def test_an_offer_that_does_not_hold_is_dropped_and_the_task_is_to_be_read(
    desk: Desk, hire: Hire, missing: str
) -> None:
    worker = await hire(listens=missing != "listener", lease=missing != "lease")
    set_offer(desk, worker.id, -1 if missing == "time" else OFFER_MS)
    await desk.add("k")
    assert offers(desk) == {}
    assert last_handed(desk) == {}
    assert not desk.books().running
    assert read_keys(desk, (await hire()).id) == ["k"]
    assert worker.channel is None or worker.handed() == []


async def test_an_offer_that_does_not_hold_does_not_keep_the_batch_from_others(desk: Desk, hire: Hire) -> None:
    deaf, worker = await hire(listens=False), await hire()
    set_offer(desk, deaf.id, 2 * OFFER_MS)
    set_offer(desk, worker.id, OFFER_MS)
    await desk.add("a", "b")
    assert worker.handed_keys() == ["a"]


async def test_nothing_is_handed_over_past_a_task_that_was_put_back(desk: Desk, hire: Hire) -> None:
    lost, worker = await hire(), await hire()
    await desk.start(lost.id, "put back")
    desk.bury(lost.id)
    set_offer(desk, worker.id, OFFER_MS)
    await desk.add("new")
    assert worker.handed() == []
    assert list(offers(desk)) == [worker.id]
    assert read_keys(desk, worker.id) == ["put back", "new"]


@pytest.mark.parametrize("staged", [False, True])
async def test_large_batches_are_not_handed_over(desk: Desk, hire: Hire, staged: bool) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("small", "large", call=LARGE, due_ms=desk.later() if staged else 0)
    if staged:
        desk.fall_due("small", "large")
        await desk.ledger.stage()
    assert worker.handed() == []
    assert list(offers(desk)) == [worker.id]
    assert sorted(read_keys(desk, worker.id)) == ["large", "small"]


async def test_a_worker_that_withdrew_its_offer_is_handed_nothing(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    assert await desk.ledger.withdraw_offer(worker.id)
    await desk.add("k")
    assert worker.handed() == []
    assert read_keys(desk, worker.id) == ["k"]


async def test_an_offer_that_was_taken_up_cannot_be_withdrawn(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("k")
    assert not await desk.ledger.withdraw_offer(worker.id)


# What take says of the slot


async def test_take_offers_the_slot_if_there_is_nothing_to_take(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    assert await worker.take(1, offered=False) == ([], 1)
    assert 0 < offers(desk)[worker.id] - desk.now() <= OFFER_MS


async def test_take_fills_the_slot_if_there_is_work(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await desk.add("a", "b", "c")
    assert await worker.take(1, offered=False) == (["a", "b"], 0)
    assert offers(desk) == {}


async def test_take_gets_back_a_slot_whose_offer_stood(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("a", "b", call=LARGE)
    assert await worker.take(1, offered=True) == (["a", "b"], 0)
    assert offers(desk) == {}


async def test_take_offers_a_slot_again_whose_offer_stood(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    set_offer(desk, worker.id, 10)
    assert await worker.take(1, offered=True) == ([], 1)
    assert offers(desk)[worker.id] > desk.now() + OFFER_MS / 2


@pytest.mark.parametrize("waiting", [["b", "c"], []])
async def test_take_leaves_the_slot_to_a_hand_over_that_is_under_way(
    desk: Desk, hire: Hire, waiting: list[str]
) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("a")
    await desk.add(*waiting)
    (run,) = worker.handed()
    assert await worker.take(1, offered=True) == (waiting[:1], run.epoch)
    assert offers(desk) == {}


@pytest.mark.parametrize("waiting", [["b", "c"], []])
async def test_take_uses_the_slot_of_a_hand_over_that_has_come(desk: Desk, hire: Hire, waiting: list[str]) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("a")
    await desk.add(*waiting)
    (run,) = worker.handed()
    assert await worker.take(1, offered=True, last=run.epoch) == (waiting, 0 if waiting else 1)


@pytest.mark.parametrize("waiting", [["a", "b"], []])
async def test_take_gets_back_a_slot_whose_offer_has_run_out(desk: Desk, hire: Hire, waiting: list[str]) -> None:
    worker = await hire()
    set_offer(desk, worker.id, -1)
    await desk.add("taken by another")
    await desk.take((await hire()).id, 1)
    await desk.add(*waiting)
    assert await worker.take(1, offered=True) == (waiting, 0 if waiting else 1)


async def test_a_worker_without_a_lease_offers_nothing(desk: Desk, hire: Hire) -> None:
    worker, kept = await hire(lease=False), KeptSlot(False, 0)
    assert await desk.ledger.take(worker.id, '"w"', 1, kept) is None
    assert not kept.answer
    assert offers(desk) == {}


# How offers come and go


async def test_an_offer_may_come_along_with_a_settlement(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    run = await desk.start(worker.id, "before")
    await desk.ledger.settle([completed(run)], worker.id)
    assert 0 < offers(desk)[worker.id] - desk.now() <= OFFER_MS
    await desk.add("k")
    assert worker.handed_keys() == ["k"]


async def test_a_settlement_alone_offers_nothing(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await desk.settle(completed(await desk.start(worker.id, "before")))
    assert offers(desk) == {}


def renew(desk: Desk, worker: str, *, offering: bool) -> None:
    desk.ledger.renew(desk.client, worker, LEASE_MS, LATE_MS, busy=False, offering=offering)


async def test_a_renewal_extends_an_offer(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    set_offer(desk, worker.id, 10)
    renew(desk, worker.id, offering=True)
    assert offers(desk)[worker.id] > desk.now() + OFFER_MS / 2


async def test_a_renewal_makes_no_offer(desk: Desk, hire: Hire) -> None:
    renew(desk, (await hire()).id, offering=True)
    assert offers(desk) == {}


async def test_a_renewal_that_says_nothing_of_an_offer_lets_it_run_out(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    set_offer(desk, worker.id, 10)
    before = offers(desk)
    renew(desk, worker.id, offering=False)
    assert offers(desk) == before


async def offer_after_a_hand_over(desk: Desk, worker: Waiting) -> Delivery:
    await worker.offer()
    await desk.add("k")
    (run,) = worker.handed()
    await worker.take(1, offered=True, last=run.epoch)
    assert list(offers(desk)) == list(last_handed(desk)) == [worker.id]
    return run


async def test_who_leaves_offers_nothing_any_more(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await desk.settle(completed(await offer_after_a_hand_over(desk, worker)))
    await desk.ledger.leave(worker.id)
    assert offers(desk) == last_handed(desk) == {}
    desk.sound_books()


async def test_who_is_given_up_offers_nothing_and_what_it_was_handed_goes_to_another(desk: Desk, hire: Hire) -> None:
    worker, other = await hire(), await hire()
    run = await offer_after_a_hand_over(desk, worker)
    desk.bury(worker.id)
    assert offers(desk) == last_handed(desk) == {}
    (again,) = await desk.take(other.id)
    assert (again.key, read_task(again.record).losses) == ("k", 1)
    assert again.epoch > run.epoch
    assert await desk.settle(completed(run)) == [Answer.LOST]
    desk.sound_books()


# What goes wrong


async def test_a_hand_over_whose_message_was_lost_is_found_and_is_the_same_run(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await desk.add("k")
    strays = await desk.ledger.unknown_deliveries(worker.id, [], [])
    assert [stray.key for stray in strays] == [b"k"]
    assert await desk.claim(worker.id, list(strays)) == worker.handed()


async def test_a_task_is_handed_over_though_the_group_was_destroyed(desk: Desk, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    desk.client.xgroup_destroy(desk.ledger.keys.stream, GROUP)
    await desk.add("k")
    assert worker.handed_keys() == ["k"]
    desk.sound_books()


async def test_what_another_runs_is_not_handed_over_after_the_group_was_made_anew(desk: Desk, hire: Hire) -> None:
    first, second = await hire(), await hire()
    run = await desk.start(first.id, "old")
    desk.client.xgroup_destroy(desk.ledger.keys.stream, GROUP)
    set_offer(desk, second.id, OFFER_MS)
    await desk.add("new")
    assert second.handed() == []
    assert desk.sound_books().running["old"].worker == first.id
    assert await desk.settle(completed(run)) == [Answer.DONE]


async def test_what_another_runs_is_not_handed_over_though_it_is_added_again(desk: Desk, hire: Hire) -> None:
    first, second = await hire(), await hire()
    run = await desk.start(first.id, "old")
    desk.client.xgroup_destroy(desk.ledger.keys.stream, GROUP)
    set_offer(desk, second.id, OFFER_MS)
    await desk.add("old", "new")
    assert second.handed_keys() == []
    assert await desk.settle(completed(run)) == [Answer.DONE]


async def test_a_task_that_was_put_back_and_runs_costs_no_later_task_its_hand_over(desk: Desk, hire: Hire) -> None:
    """It may run for hours, and lies on the front stream meanwhile."""
    busy = await desk.hire()
    run = await desk.start(busy, "long")
    await desk.settle(hand_back("long", run.epoch))
    (again,) = await desk.take(busy)
    waiting = await hire()
    await waiting.offer()
    await desk.add("plain")
    assert waiting.handed_keys() == ["plain"]
    await desk.settle(completed(again))
    desk.sound_books()


async def test_what_was_put_back_and_waits_goes_before_what_is_handed_over(desk: Desk, hire: Hire) -> None:
    busy = await desk.hire()
    runs = [await desk.start(busy, key) for key in ("runs", "waits")]
    await desk.settle(*(hand_back(run.key, run.epoch) for run in runs))
    assert [run.key for run in await desk.take(busy, 1)] == ["runs"]
    waiting = await hire()
    set_offer(desk, waiting.id, OFFER_MS)
    await desk.add("plain")
    assert waiting.handed_keys() == []
    assert [run.key for run in await desk.take(waiting.id)] == ["waits", "plain"]
    desk.sound_books()


@pytest.mark.parametrize("broken", ["offers", "epoch", "handed", "front"])
async def test_a_hand_over_that_fails_does_not_fail_the_add(desk: Desk, hire: Hire, broken: str) -> None:
    worker = await hire()
    await worker.offer()
    name = desk.ledger.keys.key(broken)
    desk.client.delete(name)
    if broken == "epoch":
        desk.client.rpush(name, "not a number")
    else:
        desk.client.set(name, "not of this type")
    assert [receipt.scheduled for receipt in await desk.add("k")] == [True]
    assert worker.handed() == []
    desk.client.delete(name)
    found = await desk.take(worker.id)
    if not found:
        # It was delivered before the rest failed: as if the answer to a read had been lost.
        strays = await desk.ledger.unknown_deliveries(worker.id, [], [])
        found = await desk.claim(worker.id, list(strays)) or []
    assert [run.key for run in found] == ["k"]


async def test_the_neighbour_of_a_poison_that_comes_back_from_the_schedule_is_never_buried(
    desk: Desk, hire: Hire
) -> None:
    """Whichever worker has the poison dies. The worker that waits must not get it beside another suspect."""
    await desk.add("poison", "neighbour")
    for _ in range(2):
        worker = await desk.hire()
        assert len(await desk.take(worker)) == 2
        desk.bury(worker)
    waiting = await hire()
    for key in ("poison", "neighbour"):
        (run,) = await desk.take(waiting.id, 1)
        assert run.key == key
        await desk.settle(hand_back(key, run.epoch, delay_ms=60_000))
    desk.fall_due("neighbour")
    await desk.ledger.stage()
    assert [run.key for run in await desk.take(waiting.id, 1)] == ["neighbour"]
    await waiting.offer()
    desk.fall_due("poison")
    await desk.ledger.stage()
    assert [run.key for run in await desk.take(await desk.hire())] in ([], ["poison"])

    desk.bury(desk.books().running["poison"].worker)
    assert not desk.sound_books().dead, "it was one of a group"
    idle = await desk.hire()
    assert [run.key for run in await desk.take(idle)] == ["poison"]
    desk.bury(idle)
    books = desk.sound_books()
    assert "neighbour" in books.tasks
    assert books.dead == {"poison"}
