"""A worker that has lost its lease starts nothing of its former id."""

from __future__ import annotations

import asyncio
import time

import pytest

from docket import Docket
from docket.ledger import Delivery
from docket.worker.claiming.direct_delivery import Offer
from tests.running import worker_at_work
from tests.times import later
from tests.waiting import eventually, within


async def test_a_delivery_that_comes_between_the_loss_of_a_lease_and_the_new_id_does_not_start(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    async def note(name: str) -> None:
        started.append(name)

    docket.register(note)
    await docket.add(note, when=later(), key="stale")("stale")
    async with docket.redis() as redis:
        record = await redis.hget(docket.keys.tasks, "stale")
    assert isinstance(record, bytes)
    async with worker_at_work(docket) as worker:
        parts, old = worker.staff, worker.id
        # On a slow network the worker takes a while to subscribe under its new id.
        subscribing, subscribed = asyncio.Event(), asyncio.Event()
        subscribe = parts.worker_channel.open

        async def subscribe_slowly(id: str) -> None:
            subscribing.set()
            await subscribed.wait()
            await subscribe(id)

        monkeypatch.setattr(parts.worker_channel, "open", subscribe_slowly)
        async with docket.redis() as redis:
            # In this order: an id that is in neither registers again. Ids that were lost long ago
            # are forgotten.
            await redis.zadd(docket.key("lost"), {old: time.time() * 1000})
            await redis.zrem(docket.keys.leases, old)
        parts.registration.renew_now()
        await within(subscribing.wait())
        assert not parts.registration.lapsed, "it has a new lease"
        # The answer to a claim of the former id.
        await parts.fetcher._intake.receive(old, [Delivery("stale", record, 1, 0.0)])
        await asyncio.sleep(0)
        assert started == []
        assert parts.fetcher._direct_delivery.state is Offer.NONE
        subscribed.set()
        await docket.add(note)("under the new id")
        await eventually(lambda: started == ["under the new id"], "it works under its new id")
        assert worker.id != old
