"""An idle worker is handed its next task; whatever happens to offers and messages, every task runs
once and no slot is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from docket import CurrentWorker, Docket, ExecutionState, Worker
from docket.codec.packing import pack_for_script
from docket.execution import TaskFunction
from docket.ledger import Delivery, Ledger, ReservedSlot
from docket.storage.server import Server
from docket.testing import Clock
from docket.worker.claiming import fetcher, unknown_deliveries
from docket.worker.claiming.direct_delivery import DirectDelivery, Offer
from docket.worker.lease import renewer
from docket.worker.running.runs import Slots
from tests.run_log import RunLog
from tests.running import run_with_defaults, worker_at_work
from tests.waiting import SECONDS, eventually, reaches

DONE = ExecutionState.COMPLETED


# What the server knows


async def offers(docket: Docket) -> set[str]:
    """The ids of the workers that have offered a slot."""
    return {id.decode() for id in await docket.server.client.zrange(docket.keys.offers, 0, -1)}


async def last_handed(docket: Docket) -> dict[str, int]:
    handed = await docket.server.client.hgetall(docket.key("last-direct"))
    return {id.decode(): int(epoch) for id, epoch in handed.items()}


async def offered_by(docket: Docket, *workers: Worker) -> None:
    """Waits until these have offered a slot."""

    async def are() -> bool:
        return {worker.id for worker in workers} <= await offers(docket)

    await eventually(are, "the workers have offered a slot")


async def stands_until(docket: Docket, worker: str) -> float:
    return await docket.server.client.zscore(docket.keys.offers, worker) or 0.0


async def has_run_out(docket: Docket, worker: str) -> bool:
    seconds, microseconds = await docket.server.client.time()
    return await stands_until(docket, worker) < seconds * 1000 + microseconds / 1000


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts that were called."""
    names, run = list[str](), Server.run

    async def noted(server: Server, script: str, keys: Sequence[bytes], *args: bytes | str, **options: Any) -> Any:
        names.append(script)
        return await run(server, script, keys, *args, **options)

    monkeypatch.setattr(Server, "run", noted)
    return names


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads end soon, and unknown deliveries are looked for soon after."""
    monkeypatch.setattr(fetcher, "BLOCK_SECONDS", 0.1)
    monkeypatch.setattr(unknown_deliveries, "RECHECK_SECONDS", 0.05)


@pytest.fixture
async def lively(docket: Docket) -> AsyncIterator[Docket]:
    """The same docket, for workers that renew often and have a long lease."""
    beat = timedelta(milliseconds=50)
    async with Docket(docket.name, docket.url, heartbeat_interval=beat, missed_heartbeats=1200) as docket:
        yield docket


async def all_end(run_log: RunLog, count: int) -> None:
    await eventually(lambda: len(run_log.ended) >= count, f"{count} have ended")


# What a worker gets


async def test_a_task_for_an_idle_worker_costs_an_enqueue_and_a_settle(docket: Docket, scripts: list[str]) -> None:
    run_log = RunLog()
    async with worker_at_work(docket) as worker:
        await offered_by(docket, worker)
        for n in range(3):
            scripts.clear()
            await reaches(await docket.add(run_log.nap)(n), DONE)
            called = [name for name in scripts if name in {"enqueue", "take", "claim", "settle"}]
            assert called == ["enqueue", "settle"]
            await offered_by(docket, worker)


async def test_a_scheduled_task_is_delivered_directly_when_it_is_due(docket: Docket, scripts: list[str]) -> None:
    run_log = RunLog()
    async with worker_at_work(docket) as worker:
        await offered_by(docket, worker)
        scripts.clear()
        when = docket.now() + timedelta(milliseconds=50)
        await reaches(await docket.add(run_log.nap, when=when)("a"), DONE)
        assert list(await last_handed(docket)) == [worker.id]
        assert "claim" not in scripts


async def test_a_task_is_delivered_directly_whatever_a_held_clock_says(docket: Docket) -> None:
    """Offers go by real time."""
    run_log = RunLog()
    with Clock(docket) as clock:
        for year in (1999, 2999):
            clock.set(docket.now().replace(year=year))
            async with worker_at_work(docket) as worker:
                await offered_by(docket, worker)
                await reaches(await docket.add(run_log.nap)(year), DONE)
                assert list(await last_handed(docket)) == [worker.id]


async def test_a_worker_of_one_slot_offers_none(docket: Docket) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=1):
        for n in range(3):
            await reaches(await docket.add(run_log.nap)(n), DONE)
            assert await offers(docket) == set()
    assert await last_handed(docket) == {}


# How many run at a time


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("concurrency", [1, 2, 3, 10])
async def test_bursts_and_single_tasks_never_run_more_at_a_time_than_there_are_slots(
    docket: Docket, concurrency: int, workers: int
) -> None:
    run_log, chance = RunLog(), random.Random(concurrency)

    async def note(n: int, worker: Worker = CurrentWorker()) -> None:
        await run_log.nap(n, worker.name, chance.choice((0.0, 0.0, 0.001, 0.004)))

    added = 0
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(worker_at_work(docket, concurrency=concurrency))
        for _ in range(40):
            burst = chance.choice((1, 1, 1, 2, 3, concurrency, 2 * concurrency))
            if chance.random() < 0.3:
                # One script call for all of them.
                await docket.add_many(docket.call(note)(n) for n in range(added, added + burst))
            else:
                await asyncio.gather(*(docket.add(note)(n) for n in range(added, added + burst)))
            added += burst
            if chance.random() < 0.5:
                await all_end(run_log, added)
        await all_end(run_log, added)
    assert sorted(run_log.began) == list(range(added))
    assert max(run_log.most_at_once.values()) <= concurrency


@pytest.mark.parametrize("concurrency", [2, 3, 10])
async def test_all_slots_of_a_worker_that_offered_one_can_be_filled(docket: Docket, concurrency: int) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=concurrency) as worker:
        await offered_by(docket, worker)
        for first in range(0, 5 * concurrency, concurrency):
            numbers = range(first, first + concurrency)
            for n in numbers:
                await docket.add(run_log.hold)(n)
            await run_log.has(*numbers)
            run_log.let_go(*numbers)
            await all_end(run_log, first + concurrency)


async def test_a_worker_whose_only_free_slot_is_the_offered_one_does_not_ask_again_and_again(
    docket: Docket, scripts: list[str]
) -> None:
    run_log = RunLog()

    async def large(_: bytes) -> None:
        await run_log.hold("large")

    async with worker_at_work(docket, concurrency=2) as worker:
        await offered_by(docket, worker)
        await docket.add(large)(b"x" * 40_000)
        await run_log.has("large")
        await docket.add(run_log.nap)("small")
        await all_end(run_log, 1)
        assert scripts.count("take") < 10
        run_log.let_go("large")


# When a message is lost or late


def elsewhere(work: Coroutine[Any, Any, Any]) -> None:
    """Done in another event loop, while ours stands still."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result(SECONDS)


async def add_from_outside(docket: Docket, function: TaskFunction, key: str) -> None:
    async with Docket(docket.name, docket.url) as other:
        await other.add(function, key=key)()
        assert await last_handed(other)


def lose_what_lies_in_the_socket(docket: Docket) -> None:
    """The subscription's connection breaks, and takes with it what was not read yet."""
    pipeline = docket.subscriptions._pipeline  # pyright: ignore[reportPrivateUsage]
    assert pipeline is not None
    pipeline.close()


@pytest.mark.usefixtures("impatient")
async def test_a_task_whose_message_was_lost_runs_once_and_costs_no_slot(docket: Docket) -> None:
    run_log = RunLog()

    async def note() -> None:
        run_log.begin("note")

    docket.register(note)
    async with worker_at_work(docket, concurrency=2) as worker:
        await offered_by(docket, worker)
        elsewhere(add_from_outside(docket, note, "lost"))
        lose_what_lies_in_the_socket(docket)
        execution = await docket.get_execution("lost")
        assert execution is not None
        await reaches(execution, DONE)
        for name in "ab":
            await docket.add(run_log.hold)(name)
        await run_log.has(*"ab")
        run_log.let_go(*"ab")
    assert Counter(run_log.began) == {"note": 1, "a": 1, "b": 1}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("concurrency", [2, 10])
async def test_every_task_runs_once_while_the_subscription_breaks_again_and_again(
    docket: Docket, concurrency: int
) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=concurrency):
        for n in range(10):
            adding = asyncio.gather(docket.add(run_log.nap)((n, 0)), docket.add(run_log.nap)((n, 1)))
            await docket.server.client.client_kill_filter(_type="pubsub")
            await adding
            await all_end(run_log, 2 * (n + 1))
    assert Counter(run_log.began) == {(n, i): 1 for n in range(10) for i in range(2)}
    assert max(run_log.most_at_once.values()) <= concurrency


class IdleWorker:
    """A direct delivery of its own, of a worker that is not
    there; what it would begin and refuse is noted."""

    ID = "w~1"

    def __init__(self, docket: Docket, slots: int = 2) -> None:
        self._docket = docket
        self.slots = Slots(slots)
        self.begun: list[int] = []
        self.refused: list[int] = []
        self.known = set[int]()
        # Of the messages that come, in seconds.
        self.age = 0.0
        self.looks = 0
        self.secret = b"no offer was made"[:16]
        self.direct_delivery = DirectDelivery(
            docket.ledger,
            docket.subscriptions,
            self.slots,
            self.known.__contains__,
            self._begin,
            self._refuse,
            lambda _: self.age,
            self._look,
        )

    def _begin(self, delivery: Delivery) -> None:
        self.begun.append(delivery.epoch)

    def _look(self) -> None:
        self.looks += 1

    def _refuse(self, delivery: Delivery) -> None:
        self.refused.append(delivery.epoch)

    def offer(self) -> ReservedSlot:
        reserved = self.direct_delivery.reserve_for_take()
        assert reserved is not None
        reserved.answer, self.secret = 1, reserved.secret
        self.direct_delivery.taken(reserved)
        assert self.direct_delivery.state is Offer.OFFERED
        return reserved

    async def hand(self, epoch: int, secret: bytes | None = None) -> None:
        """Returns when the direct delivery has heard it, too: both listen to the same channel, in
        this order. Without a secret it is sent with the one of the last offer."""
        heard, channel = asyncio.Event(), self._docket.keys.delivery_channel(self.ID)

        def noted(_: bytes) -> None:
            heard.set()

        await self._docket.subscriptions.listen(channel, noted)
        message = pack_for_script((b"k", b"record", epoch, 0, 0))
        await self._docket.server.client.publish(channel, (self.secret if secret is None else secret) + message)
        await asyncio.wait_for(heard.wait(), SECONDS)
        self._docket.subscriptions.unlisten(channel, noted)


@pytest.fixture
async def idle_worker(docket: Docket) -> IdleWorker:
    idle_worker = IdleWorker(docket)
    await idle_worker.direct_delivery.open(IdleWorker.ID)
    return idle_worker


async def test_what_is_delivered_directly_begins_in_the_reserved_slot(idle_worker: IdleWorker) -> None:
    idle_worker.offer()
    assert idle_worker.slots.free == 1
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.slots.free, idle_worker.direct_delivery.state) == ([7], 1, Offer.NONE)


async def test_what_is_delivered_directly_to_a_worker_that_begins_to_stop_goes_back(idle_worker: IdleWorker) -> None:
    idle_worker.offer()
    idle_worker.direct_delivery.refuse_from_now()
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.refused, idle_worker.slots.free) == ([], [7], 2)


async def test_a_message_that_is_late_begins_nothing_and_keeps_a_slot_until_the_server_was_asked(
    idle_worker: IdleWorker,
) -> None:
    idle_worker.offer()
    idle_worker.age = 3.0
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.refused, idle_worker.slots.free, idle_worker.looks) == ([], [], 1, 1)
    assert (idle_worker.direct_delivery.state, idle_worker.direct_delivery.due_epoch) == (Offer.DUE, 7)
    idle_worker.direct_delivery.nothing_due(7)
    assert (idle_worker.slots.free, idle_worker.direct_delivery.state) == (2, Offer.NONE)


async def test_a_message_that_is_late_and_finds_no_slot_is_left_to_the_look(idle_worker: IdleWorker) -> None:
    for _ in range(2):
        idle_worker.slots.take()
    idle_worker.age = 3.0
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.refused, idle_worker.slots.free, idle_worker.looks) == ([], [], 0, 1)
    assert idle_worker.direct_delivery.state is Offer.NONE


@pytest.mark.parametrize("slots_in_use", [0, 1, 2])
async def test_a_late_message_for_a_run_that_was_found_before_changes_nothing(
    idle_worker: IdleWorker, slots_in_use: int
) -> None:
    """With no slot free, too: requeued, a run that
    is under way would begin a second time elsewhere."""
    idle_worker.known.add(7)
    for _ in range(slots_in_use):
        idle_worker.slots.take()
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.refused, idle_worker.slots.free) == ([], [], 2 - slots_in_use)


async def test_an_offer_that_a_late_message_puts_in_doubt_is_asked_about(idle_worker: IdleWorker) -> None:
    idle_worker.offer()
    assert not idle_worker.direct_delivery.is_wanted
    idle_worker.known.add(7)
    await idle_worker.hand(7)
    assert (idle_worker.direct_delivery.state, idle_worker.direct_delivery.is_wanted) == (Offer.OFFERED, True)
    reserved = idle_worker.direct_delivery.reserve_for_take()
    assert reserved is not None
    assert (reserved.offered, reserved.last_epoch) == (True, 7)
    reserved.answer = 0
    idle_worker.direct_delivery.taken(reserved)
    assert (idle_worker.direct_delivery.state, idle_worker.slots.free) == (Offer.NONE, 2)


async def test_the_slot_kept_for_a_message_that_does_not_come_goes_to_the_run_that_was_found(
    idle_worker: IdleWorker,
) -> None:
    reserved = idle_worker.offer()
    reserved.answer = 7
    idle_worker.direct_delivery.taken(reserved)
    assert not idle_worker.direct_delivery.slot_for(8)
    assert idle_worker.direct_delivery.slot_for(7)
    assert (idle_worker.direct_delivery.state, idle_worker.slots.free) == (Offer.NONE, 1)


async def test_a_slot_is_kept_for_a_message_that_is_due_until_it_comes(idle_worker: IdleWorker) -> None:
    idle_worker.offer()
    reserved = idle_worker.direct_delivery.reserve_for_take()
    assert reserved is not None
    assert reserved.offered
    reserved.answer = 7
    idle_worker.direct_delivery.taken(reserved)
    assert (idle_worker.slots.free, idle_worker.direct_delivery.reserve_for_take()) == (1, None)
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.slots.free) == ([7], 1)


async def test_a_slot_is_kept_for_a_message_that_is_due_until_a_look_shows_that_there_is_none(
    idle_worker: IdleWorker,
) -> None:
    reserved = idle_worker.offer()
    idle_worker.direct_delivery.nothing_due(7)
    assert idle_worker.slots.free == 1, "an offer may still stand"
    reserved.answer = 7
    idle_worker.direct_delivery.taken(reserved)
    idle_worker.direct_delivery.nothing_due(6)
    assert idle_worker.slots.free == 1, "a look that began before says nothing about this one"
    idle_worker.direct_delivery.nothing_due(7)
    assert (idle_worker.slots.free, idle_worker.direct_delivery.state) == (2, Offer.NONE)


async def test_a_message_that_is_quicker_than_the_answer_to_a_take_does_not_keep_the_slot(
    idle_worker: IdleWorker,
) -> None:
    reserved = idle_worker.offer()
    await idle_worker.hand(7)
    reserved.answer = 7
    idle_worker.direct_delivery.taken(reserved)
    assert (idle_worker.slots.free, idle_worker.direct_delivery.state) == (1, Offer.NONE)
    idle_worker.slots.give_back()
    assert idle_worker.offer().last_epoch == 7


async def test_a_slot_that_is_read_for_is_not_offered_along_with_a_settlement(idle_worker: IdleWorker) -> None:
    assert idle_worker.direct_delivery.with_settlement(reading=2) is None
    offer = idle_worker.direct_delivery.with_settlement(reading=1)
    assert offer is not None
    assert offer.worker == IdleWorker.ID
    assert idle_worker.slots.free == 1


async def test_a_message_without_an_offer_begins_nothing_and_the_server_is_asked(idle_worker: IdleWorker) -> None:
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.refused, idle_worker.looks) == ([], [], 1)
    assert (idle_worker.slots.free, idle_worker.direct_delivery.state) == (2, Offer.NONE)


@pytest.mark.parametrize("secret", [b"", b"x" * 16, b"x" * 15])
async def test_a_message_without_the_secret_of_the_offer_begins_nothing_and_the_offer_stands(
    idle_worker: IdleWorker, secret: bytes
) -> None:
    idle_worker.offer()
    await idle_worker.hand(7, secret)
    assert (idle_worker.begun, idle_worker.refused, idle_worker.slots.free) == ([], [], 1)
    await idle_worker.hand(8)
    assert (idle_worker.begun, idle_worker.looks) == ([8], 1)


async def test_the_secret_of_an_offer_serves_once(idle_worker: IdleWorker, caplog: pytest.LogCaptureFixture) -> None:
    idle_worker.offer()
    await idle_worker.hand(7)
    await idle_worker.hand(8)
    first = idle_worker.secret
    idle_worker.slots.give_back()
    idle_worker.offer()
    await idle_worker.hand(9, first)
    assert (idle_worker.begun, idle_worker.direct_delivery.state) == ([7], Offer.OFFERED)
    assert "were ignored" not in caplog.text, "a secret of the worker's own is late, not forged"


async def test_a_worker_that_stops_begins_nothing(idle_worker: IdleWorker) -> None:
    idle_worker.offer()
    stopping = asyncio.create_task(idle_worker.direct_delivery.withdraw())
    await idle_worker.hand(7)
    await stopping
    assert idle_worker.begun == []
    assert idle_worker.direct_delivery.reserve_for_take() is None


async def test_a_message_for_a_former_id_is_not_heard(idle_worker: IdleWorker) -> None:
    await idle_worker.direct_delivery.open("w~2")
    await idle_worker.hand(7)
    assert (idle_worker.begun, idle_worker.refused) == ([], [])


# When a worker stops, stands still or is forgotten


async def test_a_worker_that_stops_is_handed_nothing_and_another_has_the_task_at_once(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would not run out in time.
    monkeypatch.setattr(Ledger, "offer_ms", 600_000)
    run_log = RunLog()

    async def note(name: str, worker: Worker = CurrentWorker()) -> None:
        await run_log.hold(f"{name} at {worker.name}")

    async with worker_at_work(docket, concurrency=4) as first:
        await offered_by(docket, first)
        held = [f"{name} at {first.name}" for name in "ab"]
        for name, who in zip("ab", held, strict=True):
            await docket.add(note)(name)
            await run_log.has(who)
        await offered_by(docket, first)
        first.stop()
        await eventually(lambda: has_run_out(docket, first.id), "the offer is withdrawn")
        async with worker_at_work(docket) as second:
            held.append(f"c at {second.name}")
            await docket.add(note)("c")
            await run_log.has(held[-1])
            assert first.is_stopping
            run_log.let_go(*held)
            await all_end(run_log, 3)
    assert run_log.began == held


async def test_a_task_that_is_added_as_a_worker_stops_runs_once(docket: Docket) -> None:
    run_log = RunLog()
    async with worker_at_work(docket, concurrency=2):
        for n in range(10):
            async with Worker(docket, f"goes {n}") as goes:
                working = asyncio.create_task(goes.run_forever())
                await eventually(lambda worker=goes: worker.is_working, "it works")
                await offered_by(docket, goes)
                adding = asyncio.gather(*(docket.add(run_log.nap)((n, i)) for i in range(3)))
                if n % 2:
                    await asyncio.sleep(0)
                goes.stop()
                await adding
                await asyncio.wait_for(working, SECONDS)
            await all_end(run_log, 3 * (n + 1))
    assert Counter(run_log.began) == {(n, i): 1 for n in range(10) for i in range(3)}


@pytest.mark.usefixtures("impatient")
async def test_a_worker_whose_event_loop_is_blocked_is_soon_handed_nothing(
    lively: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "offer_ms", 500)
    monkeypatch.setattr(renewer, "OFFER_MS", 500)
    ran: list[str] = []

    async def note(worker: Worker = CurrentWorker()) -> None:
        ran.append(worker.name)

    async def when_the_offer_has_run_out(id: str) -> None:
        async with Docket(lively.name, lively.url) as other:
            await eventually(lambda: has_run_out(other, id), "the offer has run out")
            await other.add(note)()
            await run_with_defaults(other, name="awake")

    async with worker_at_work(lively) as worker:
        await offered_by(lively, worker)
        elsewhere(when_the_offer_has_run_out(worker.id))
        assert ran == ["awake"]


async def test_an_offer_stands_for_as_long_as_the_worker_waits(lively: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "offer_ms", 5000)
    monkeypatch.setattr(renewer, "OFFER_MS", 100)
    async with worker_at_work(lively) as worker:
        await offered_by(lively, worker)
        for _ in range(3):
            before = await stands_until(lively, worker.id)

            async def is_extended(before: float = before) -> bool:
                return await stands_until(lively, worker.id) > before

            await eventually(is_extended, "the offer is extended")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("before", [0, 1, 3])
async def test_all_slots_can_be_filled_after_the_server_came_back_empty(lively: Docket, before: int) -> None:
    run_log = RunLog()
    async with worker_at_work(lively, concurrency=3) as worker:
        await offered_by(lively, worker)
        for n in range(before):
            await lively.add(run_log.nap)(n)
        await all_end(run_log, before)
        await lively.server.client.flushdb()
        await eventually(lambda: lively.server.client.exists(lively.keys.leases), "it is registered again")
        for name in "abc":
            await lively.add(run_log.hold)(name)
        await run_log.has(*"abc")
        run_log.let_go(*"abc")
    assert Counter(run_log.began) == Counter([*range(before), *"abc"])
