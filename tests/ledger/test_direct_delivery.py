"""A ready task is claimed for a worker that has offered a
slot, with the same effect as a claim by the worker itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from docket.codec.packing import unpack_from_script
from docket.ledger import Delivery, ReservedSlot, SettleResult, SlotOffer, requeue
from docket.ledger.calls import OFFER_MS
from docket.ledger.fleet import worker_id
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.records import read_task
from tests.waiting import SECONDS

from .invariants import GROUP
from .ledger_client import LATE_MS, LEASE_MS, LedgerClient, completed

LARGE = b"x" * 33_000
MOST_AT_ONCE = 8
SECRET = b"a one-time secret"[:16]


class Channel:
    """A subscription; a message of its own tells where to stop."""

    END = b""

    def __init__(self, client: Any, name: bytes) -> None:
        self._client, self._name = client, name
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(name)
        assert self._pubsub.get_message(timeout=SECONDS) is not None

    def heard(self) -> list[bytes]:
        """Everything since the last time."""
        self._client.publish(self._name, self.END)
        messages: list[bytes] = []
        while True:
            message = self._pubsub.get_message(timeout=SECONDS)
            assert message is not None, "the last message never came"
            if message["data"] == self.END:
                return messages
            messages.append(message["data"])

    def close(self) -> None:
        self._pubsub.close()


class Waiting:
    """A worker that waits for work and listens for what it is handed."""

    def __init__(self, ledger_client: LedgerClient, id: str, channel: Channel | None) -> None:
        self.ledger_client, self.id, self.channel = ledger_client, id, channel

    async def take(self, count: int, *, offered: bool, last: int = 0) -> tuple[list[str], int | None]:
        """The keys, and what became of the slot that is kept for an offer."""
        kept = ReservedSlot(offered, last, secret=SECRET)
        deliveries = await self.ledger_client.ledger.deliveries.take(self.id, '"w"', count, kept)
        assert deliveries is not None, "the worker has no lease"
        return [run.key for run in deliveries], kept.answer

    async def offer(self) -> None:
        assert await self.take(1, offered=False) == ([], 1)

    def handed(self) -> list[Delivery]:
        assert self.channel is not None
        deliveries: list[Delivery] = []
        for message in self.channel.heard():
            assert message.startswith(SECRET)
            key, record, epoch, claimed_ms, _ = unpack_from_script(message.removeprefix(SECRET))
            deliveries.append(Delivery(bytes_text(key), record, epoch, claimed_ms))
        return deliveries

    def handed_keys(self) -> list[str]:
        return [run.key for run in self.handed()]


Hire = Callable[..., Awaitable[Waiting]]


@pytest.fixture
def channels(ledger_client: LedgerClient) -> Iterator[Callable[[bytes], Channel]]:
    with ExitStack() as stack:

        def listen(name: bytes) -> Channel:
            channel = Channel(ledger_client.client, name)
            stack.callback(channel.close)
            return channel

        yield listen


@pytest.fixture
def hire(ledger_client: LedgerClient, channels: Callable[[bytes], Channel]) -> Hire:
    """Registers a worker. It has not offered a slot yet."""

    async def hire(id: str | None = None, *, listens: bool = True, lease: bool = True) -> Waiting:
        if id is None:
            id = await ledger_client.hire() if lease else "stranger~1"
        elif lease:
            await ledger_client.ledger.fleet.register(id, LEASE_MS, ["f"])
        return Waiting(ledger_client, id, channels(ledger_client.ledger.keys.delivery_channel(id)) if listens else None)

    return hire


def offers(ledger_client: LedgerClient) -> dict[str, float]:
    """Until when whose offer stands."""
    return {
        id.decode(): until
        for id, until in ledger_client.client.zrange(ledger_client.ledger.keys.offers, 0, -1, withscores=True)
    }


def last_handed(ledger_client: LedgerClient) -> dict[str, int]:
    """The epoch of each worker's last direct delivery."""
    return {
        id.decode(): int(epoch)
        for id, epoch in ledger_client.client.hgetall(ledger_client.ledger.keys.key("last-direct")).items()
    }


def set_offer(ledger_client: LedgerClient, worker: str, ms_from_now: int) -> None:
    keys = ledger_client.ledger.keys
    ledger_client.client.zadd(keys.offers, {text_bytes(worker): ledger_client.now() + ms_from_now})
    ledger_client.client.hset(keys.key("offer-secrets"), worker, SECRET)


def read_keys(ledger_client: LedgerClient, worker: str) -> list[str]:
    """What a blocked read would be given."""
    return [bytes_text(entry.key) for entry in ledger_client.read(worker)]


# What a direct delivery is


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_worker_that_offered_a_slot_is_handed_the_next_task(
    ledger_client: LedgerClient, hire: Hire, fresh: bool
) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("k", fresh=fresh)
    (run,) = worker.handed()
    assert run.key == "k"
    assert read_task(run.record).function_name == "f"
    assert ledger_client.client.hget(ledger_client.ledger.keys.tasks, "k") == run.record
    assert last_handed(ledger_client) == {worker.id: run.epoch}
    stored_state = ledger_client.checked_state()
    assert (stored_state.running["k"].worker, stored_state.running["k"].epoch) == (worker.id, run.epoch)
    assert [(entry.key, entry.holder) for entry in stored_state.entries] == [("k", worker.id)]


async def test_what_was_delivered_directly_can_be_settled(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("k")
    (run,) = worker.handed()
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]
    assert not ledger_client.checked_state().tasks


async def test_what_was_delivered_directly_is_not_read_by_anybody(ledger_client: LedgerClient, hire: Hire) -> None:
    worker, other = await hire(), await hire()
    await worker.offer()
    await ledger_client.add("k")
    assert ledger_client.read(other.id) == []
    assert ledger_client.read(worker.id) == []


@pytest.mark.parametrize("name", ["w", 'host:80%3A 100% "é"', "a~b"])
async def test_the_event_of_a_direct_delivery_names_the_worker(
    ledger_client: LedgerClient, hire: Hire, channels: Callable[[bytes], Channel], name: str
) -> None:
    worker, events = await hire(worker_id(name, "1")), channels(ledger_client.ledger.keys.task_channel("k"))
    await worker.offer()
    await ledger_client.add("k")
    assert len(worker.handed()) == 1
    *_, event = map(json.loads, events.heard())
    assert (event["state"], event["worker"]) == ("running", name)


async def test_epochs_of_direct_deliveries_grow_with_all_others(ledger_client: LedgerClient, hire: Hire) -> None:
    worker, epochs = await hire(), list[int]()
    for key in "abc":
        epochs.append((await ledger_client.start(worker.id, f"taken {key}")).epoch)
        await worker.offer()
        await ledger_client.add(f"handed {key}")
        epochs += [run.epoch for run in worker.handed()]
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 6


async def test_a_scheduled_task_is_delivered_directly_when_it_is_due(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("k", due_ms=ledger_client.later())
    assert worker.handed() == []
    ledger_client.fall_due("k")
    assert (await ledger_client.ledger.tasks.stage())[0] == 1
    assert worker.handed_keys() == ["k"]
    assert ledger_client.checked_state().running["k"].worker == worker.id


# Who gets what


async def test_there_is_one_task_for_one_offer(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("a", "b")
    await ledger_client.add("c")
    assert worker.handed_keys() == ["a"]
    assert read_keys(ledger_client, worker.id) == ["b", "c"]


async def test_there_is_one_offer_for_one_task(ledger_client: LedgerClient, hire: Hire) -> None:
    workers = [await hire() for _ in range(3)]
    for worker in workers:
        await worker.offer()
    await ledger_client.add("k")
    assert [key for worker in workers for key in worker.handed_keys()] == ["k"]
    assert len(offers(ledger_client)) == 2


async def test_a_batch_goes_to_all_who_offered_and_the_rest_is_to_be_read(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    workers = [await hire() for _ in range(3)]
    for worker in workers:
        await worker.offer()
    await ledger_client.add("a", "b", "c", "d")
    handed = [worker.handed_keys() for worker in workers]
    assert sorted(handed) == [["a"], ["b"], ["c"]]
    assert read_keys(ledger_client, workers[0].id) == ["d"]
    ledger_client.checked_state()


async def test_one_call_delivers_no_more_than_a_few_directly(ledger_client: LedgerClient, hire: Hire) -> None:
    workers = [await hire() for _ in range(MOST_AT_ONCE + 1)]
    for worker in workers:
        await worker.offer()
    await ledger_client.add(*(f"{n}" for n in range(20)))
    assert sum(len(worker.handed()) for worker in workers) == MOST_AT_ONCE
    assert len(offers(ledger_client)) == 1
    assert len(read_keys(ledger_client, workers[0].id)) == 20 - MOST_AT_ONCE


async def test_the_oldest_task_is_delivered_directly_and_not_the_one_that_was_just_added(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    worker = await hire()
    run = await ledger_client.start(worker.id, "before")
    await ledger_client.add("old")
    await ledger_client.ledger.tasks.settle([completed(run)], SlotOffer(worker.id, SECRET))
    await ledger_client.add("new")
    assert worker.handed_keys() == ["old"]
    assert read_keys(ledger_client, worker.id) == ["new"]


async def test_no_more_is_delivered_directly_than_became_ready(ledger_client: LedgerClient, hire: Hire) -> None:
    workers = [await hire() for _ in range(2)]
    await ledger_client.add("old 1", "old 2")
    for worker in workers:
        set_offer(ledger_client, worker.id, OFFER_MS)
    await ledger_client.add("new")
    assert [key for worker in workers for key in worker.handed_keys()] == ["old 1"]
    assert len(offers(ledger_client)) == 1


async def test_an_entry_that_is_not_ours_is_dropped_and_the_offer_stands(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    worker = await hire()
    await worker.offer()
    ledger_client.client.xadd(ledger_client.ledger.keys.stream, {"stranger": "x"})
    await ledger_client.add("k")
    assert worker.handed() == []
    assert list(offers(ledger_client)) == [worker.id]
    assert read_keys(ledger_client, worker.id) == ["k"]


async def test_a_task_that_is_already_there_is_not_delivered_directly_again(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("k")
    await worker.take(1, offered=True, last=worker.handed()[0].epoch)
    await ledger_client.add("k")
    assert worker.handed() == []
    assert list(offers(ledger_client)) == [worker.id]


# Who gets nothing


@pytest.mark.parametrize("missing", ["lease", "listener", "time"])
async def test_an_offer_that_does_not_hold_is_dropped_and_the_task_is_to_be_read(
    ledger_client: LedgerClient, hire: Hire, missing: str
) -> None:
    worker = await hire(listens=missing != "listener", lease=missing != "lease")
    set_offer(ledger_client, worker.id, -1 if missing == "time" else OFFER_MS)
    await ledger_client.add("k")
    assert offers(ledger_client) == {}
    assert last_handed(ledger_client) == {}
    assert not ledger_client.stored_state().running
    assert read_keys(ledger_client, (await hire()).id) == ["k"]
    assert worker.channel is None or worker.handed() == []


async def test_an_offer_that_does_not_hold_does_not_keep_the_batch_from_others(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    deaf, worker = await hire(listens=False), await hire()
    set_offer(ledger_client, deaf.id, 2 * OFFER_MS)
    set_offer(ledger_client, worker.id, OFFER_MS)
    await ledger_client.add("a", "b")
    assert worker.handed_keys() == ["a"]


async def test_nothing_is_delivered_directly_past_a_task_that_was_put_back(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    lost, worker = await hire(), await hire()
    await ledger_client.start(lost.id, "put back")
    ledger_client.bury(lost.id)
    set_offer(ledger_client, worker.id, OFFER_MS)
    await ledger_client.add("new")
    assert worker.handed() == []
    assert list(offers(ledger_client)) == [worker.id]
    assert read_keys(ledger_client, worker.id) == ["put back", "new"]


@pytest.mark.parametrize("staged", [False, True])
async def test_large_batches_are_not_delivered_directly(ledger_client: LedgerClient, hire: Hire, staged: bool) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("small", "large", call=LARGE, due_ms=ledger_client.later() if staged else 0)
    if staged:
        ledger_client.fall_due("small", "large")
        await ledger_client.ledger.tasks.stage()
    assert worker.handed() == []
    assert list(offers(ledger_client)) == [worker.id]
    assert sorted(read_keys(ledger_client, worker.id)) == ["large", "small"]


async def test_a_worker_that_withdrew_its_offer_is_handed_nothing(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    assert await ledger_client.ledger.deliveries.withdraw_offer(worker.id)
    await ledger_client.add("k")
    assert worker.handed() == []
    assert read_keys(ledger_client, worker.id) == ["k"]


async def test_an_offer_that_was_taken_up_cannot_be_withdrawn(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("k")
    assert not await ledger_client.ledger.deliveries.withdraw_offer(worker.id)


# What take says of the slot


async def test_take_offers_the_slot_if_there_is_nothing_to_take(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    assert await worker.take(1, offered=False) == ([], 1)
    assert 0 < offers(ledger_client)[worker.id] - ledger_client.now() <= OFFER_MS


async def test_take_fills_the_slot_if_there_is_work(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await ledger_client.add("a", "b", "c")
    assert await worker.take(1, offered=False) == (["a", "b"], 0)
    assert offers(ledger_client) == {}


async def test_take_gets_back_a_slot_whose_offer_stood(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("a", "b", call=LARGE)
    assert await worker.take(1, offered=True) == (["a", "b"], 0)
    assert offers(ledger_client) == {}


async def test_take_offers_a_slot_again_whose_offer_stood(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    set_offer(ledger_client, worker.id, 10)
    assert await worker.take(1, offered=True) == ([], 1)
    assert offers(ledger_client)[worker.id] > ledger_client.now() + OFFER_MS / 2


@pytest.mark.parametrize("waiting", [["b", "c"], []])
async def test_take_leaves_the_slot_to_a_direct_delivery_that_is_under_way(
    ledger_client: LedgerClient, hire: Hire, waiting: list[str]
) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("a")
    await ledger_client.add(*waiting)
    (run,) = worker.handed()
    assert await worker.take(1, offered=True) == (waiting[:1], run.epoch)
    assert offers(ledger_client) == {}


@pytest.mark.parametrize("waiting", [["b", "c"], []])
async def test_take_uses_the_slot_of_a_direct_delivery_that_has_come(
    ledger_client: LedgerClient, hire: Hire, waiting: list[str]
) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("a")
    await ledger_client.add(*waiting)
    (run,) = worker.handed()
    assert await worker.take(1, offered=True, last=run.epoch) == (waiting, 0 if waiting else 1)


@pytest.mark.parametrize("waiting", [["a", "b"], []])
async def test_take_gets_back_a_slot_whose_offer_has_run_out(
    ledger_client: LedgerClient, hire: Hire, waiting: list[str]
) -> None:
    worker = await hire()
    set_offer(ledger_client, worker.id, -1)
    await ledger_client.add("taken by another")
    await ledger_client.take((await hire()).id, 1)
    await ledger_client.add(*waiting)
    assert await worker.take(1, offered=True) == (waiting, 0 if waiting else 1)


async def test_a_worker_without_a_lease_offers_nothing(ledger_client: LedgerClient, hire: Hire) -> None:
    worker, kept = await hire(lease=False), ReservedSlot(False, 0)
    assert await ledger_client.ledger.deliveries.take(worker.id, '"w"', 1, kept) is None
    assert not kept.answer
    assert offers(ledger_client) == {}


# How offers come and go


async def test_an_offer_may_come_along_with_a_settlement(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    run = await ledger_client.start(worker.id, "before")
    await ledger_client.ledger.tasks.settle([completed(run)], SlotOffer(worker.id, SECRET))
    assert 0 < offers(ledger_client)[worker.id] - ledger_client.now() <= OFFER_MS
    await ledger_client.add("k")
    assert worker.handed_keys() == ["k"]


async def test_a_settlement_alone_offers_nothing(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await ledger_client.settle(completed(await ledger_client.start(worker.id, "before")))
    assert offers(ledger_client) == {}


def renew(ledger_client: LedgerClient, worker: str, *, has_offer: bool) -> None:
    ledger_client.ledger.fleet.renew(ledger_client.client, worker, LEASE_MS, LATE_MS, busy=False, has_offer=has_offer)


async def test_a_renewal_extends_an_offer(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    set_offer(ledger_client, worker.id, 10)
    renew(ledger_client, worker.id, has_offer=True)
    assert offers(ledger_client)[worker.id] > ledger_client.now() + OFFER_MS / 2


async def test_a_renewal_makes_no_offer(ledger_client: LedgerClient, hire: Hire) -> None:
    renew(ledger_client, (await hire()).id, has_offer=True)
    assert offers(ledger_client) == {}


async def test_a_renewal_that_says_nothing_of_an_offer_lets_it_run_out(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    set_offer(ledger_client, worker.id, 10)
    before = offers(ledger_client)
    renew(ledger_client, worker.id, has_offer=False)
    assert offers(ledger_client) == before


async def offer_after_a_direct_delivery(ledger_client: LedgerClient, worker: Waiting) -> Delivery:
    await worker.offer()
    await ledger_client.add("k")
    (run,) = worker.handed()
    await worker.take(1, offered=True, last=run.epoch)
    assert list(offers(ledger_client)) == list(last_handed(ledger_client)) == [worker.id]
    return run


async def test_who_leaves_offers_nothing_any_more(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await ledger_client.settle(completed(await offer_after_a_direct_delivery(ledger_client, worker)))
    await ledger_client.ledger.fleet.leave(worker.id)
    assert offers(ledger_client) == last_handed(ledger_client) == {}
    ledger_client.checked_state()


async def test_who_is_given_up_offers_nothing_and_what_it_was_handed_goes_to_another(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    worker, other = await hire(), await hire()
    run = await offer_after_a_direct_delivery(ledger_client, worker)
    ledger_client.bury(worker.id)
    assert offers(ledger_client) == last_handed(ledger_client) == {}
    (again,) = await ledger_client.take(other.id)
    assert (again.key, read_task(again.record).losses) == ("k", 1)
    assert again.epoch > run.epoch
    assert await ledger_client.settle(completed(run)) == [SettleResult.LOST]
    ledger_client.checked_state()


# What goes wrong


async def test_a_direct_delivery_whose_message_was_lost_is_found_and_is_the_same_run(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    worker = await hire()
    await worker.offer()
    await ledger_client.add("k")
    unknown = await ledger_client.ledger.deliveries.unknown_deliveries(worker.id, [], [])
    assert [delivery.key for delivery in unknown] == [b"k"]
    assert await ledger_client.claim(worker.id, list(unknown)) == worker.handed()


async def test_a_task_is_delivered_directly_though_the_group_was_destroyed(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    worker = await hire()
    await worker.offer()
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, GROUP)
    await ledger_client.add("k")
    assert worker.handed_keys() == ["k"]
    ledger_client.checked_state()


async def test_what_another_runs_is_not_delivered_directly_after_the_group_was_made_again(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    first, second = await hire(), await hire()
    run = await ledger_client.start(first.id, "old")
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, GROUP)
    set_offer(ledger_client, second.id, OFFER_MS)
    await ledger_client.add("new")
    assert second.handed() == []
    assert ledger_client.checked_state().running["old"].worker == first.id
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]


async def test_what_another_runs_is_not_delivered_directly_though_it_is_added_again(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    first, second = await hire(), await hire()
    run = await ledger_client.start(first.id, "old")
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, GROUP)
    set_offer(ledger_client, second.id, OFFER_MS)
    await ledger_client.add("old", "new")
    assert second.handed_keys() == []
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]


async def test_a_task_that_was_put_back_and_runs_costs_no_later_task_its_direct_delivery(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    """It may run for hours, and lies on the front stream meanwhile."""
    busy = await ledger_client.hire()
    run = await ledger_client.start(busy, "long")
    await ledger_client.settle(requeue("long", run.epoch))
    (again,) = await ledger_client.take(busy)
    waiting = await hire()
    await waiting.offer()
    await ledger_client.add("plain")
    assert waiting.handed_keys() == ["plain"]
    await ledger_client.settle(completed(again))
    ledger_client.checked_state()


async def test_what_was_put_back_and_waits_goes_before_what_is_delivered_directly(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    busy = await ledger_client.hire()
    runs = [await ledger_client.start(busy, key) for key in ("runs", "waits")]
    await ledger_client.settle(*(requeue(run.key, run.epoch) for run in runs))
    assert [run.key for run in await ledger_client.take(busy, 1)] == ["runs"]
    waiting = await hire()
    set_offer(ledger_client, waiting.id, OFFER_MS)
    await ledger_client.add("plain")
    assert waiting.handed_keys() == []
    assert [run.key for run in await ledger_client.take(waiting.id)] == ["waits", "plain"]
    ledger_client.checked_state()


@pytest.mark.parametrize("broken", ["offers", "epoch", "last-direct", "front"])
async def test_a_direct_delivery_that_fails_does_not_fail_the_add(
    ledger_client: LedgerClient, hire: Hire, broken: str
) -> None:
    worker = await hire()
    await worker.offer()
    name = ledger_client.ledger.keys.key(broken)
    ledger_client.client.delete(name)
    if broken == "epoch":
        ledger_client.client.rpush(name, "not a number")
    else:
        ledger_client.client.set(name, "not of this type")
    assert [result.scheduled for result in await ledger_client.add("k")] == [True]
    assert worker.handed() == []
    ledger_client.client.delete(name)
    found = await ledger_client.take(worker.id)
    if not found:
        # It was delivered before the rest failed: as if the answer to a read had been lost.
        unknown = await ledger_client.ledger.deliveries.unknown_deliveries(worker.id, [], [])
        found = await ledger_client.claim(worker.id, list(unknown)) or []
    assert [run.key for run in found] == ["k"]


async def test_the_neighbour_of_a_poison_that_comes_back_from_the_schedule_is_never_buried(
    ledger_client: LedgerClient, hire: Hire
) -> None:
    """Whichever worker has the poison dies. The worker
    that waits must not get it beside another suspect."""
    await ledger_client.add("poison", "neighbour")
    for _ in range(2):
        worker = await ledger_client.hire()
        assert len(await ledger_client.take(worker)) == 2
        ledger_client.bury(worker)
    waiting = await hire()
    for key in ("poison", "neighbour"):
        (run,) = await ledger_client.take(waiting.id, 1)
        assert run.key == key
        await ledger_client.settle(requeue(key, run.epoch, delay_ms=60_000))
    ledger_client.fall_due("neighbour")
    await ledger_client.ledger.tasks.stage()
    assert [run.key for run in await ledger_client.take(waiting.id, 1)] == ["neighbour"]
    await waiting.offer()
    ledger_client.fall_due("poison")
    await ledger_client.ledger.tasks.stage()
    assert [run.key for run in await ledger_client.take(await ledger_client.hire())] in ([], ["poison"])

    ledger_client.bury(ledger_client.stored_state().running["poison"].worker)
    assert not ledger_client.checked_state().dead, "it was one of a group"
    idle = await ledger_client.hire()
    assert [run.key for run in await ledger_client.take(idle)] == ["poison"]
    ledger_client.bury(idle)
    stored_state = ledger_client.checked_state()
    assert "neighbour" in stored_state.tasks
    assert stored_state.dead == {"poison"}
