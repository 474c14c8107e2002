"""Answers and messages that are lost or late: every task runs once, and none waits behind a worker
that does not know of it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pytest

from chaos.proxy import Proxy
from docket import ConcurrencyLimit, CurrentWorker, Docket, ExecutionState, Worker
from docket.worker.claiming import unknown_deliveries
from tests.waiting import WAIT_LIMIT, ends, eventually, within

from .conftest import Harness

LARGE = "x" * 40_000


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[Worker]:
    task = asyncio.create_task(worker.run_forever())
    try:
        await eventually(lambda: worker.is_working or task.done(), "it works")
        yield worker
    finally:
        worker.stop()
        await ends(task)


class Holding:
    """Tasks that go on until they are let go; which worker began which of them."""

    def __init__(self) -> None:
        self.began: list[tuple[str, str]] = []
        self.over = asyncio.Event()

    async def hold(self, name: str, _: str = "", worker: Worker = CurrentWorker()) -> None:
        self.began.append((name, worker.name))
        await self.over.wait()

    def names(self) -> Counter[str]:
        return Counter(name for name, _ in self.began)

    async def has(self, *names: str) -> None:
        await eventually(lambda: set(names) <= set(self.names()), f"{names} have begun; so far {self.began}")


async def is_member(docket: Docket, set_name: str, worker: Worker) -> bool:
    return worker.id.encode() in await docket.server.client.zrange(docket.key(set_name), 0, -1)


async def test_a_direct_delivery_message_that_comes_late_does_not_start_its_task_again(harness: Harness) -> None:
    """The message arrives when the task runs, found without it, and when no slot is free."""
    server, holding = harness.server(), Holding()
    async with Proxy(server) as proxy:
        far, near = await harness.docket(lease=60, url=proxy.url), await harness.docket(lease=60, url=server.url)
        for docket in (far, near):
            docket.register(holding.hold)
        async with working(await harness.worker(far, name="far", concurrency=3)) as worker:
            await eventually(lambda: is_member(near, "offers", worker), "it has offered a slot")
            proxy.messages.clear()
            await near.add(holding.hold, key="last-direct")("last-direct")
            assert await near.server.client.hget(near.key("last-direct"), worker.id), "it was delivered directly"
            # Too large for a direct delivery: read, and at the take
            # after it the worker learns that a message is due.
            await near.add(holding.hold)("read", LARGE)
            await holding.has("last-direct", "read")
            await near.add(holding.hold)("last", LARGE)
            await holding.has("last")
            async with working(await harness.worker(near, name="near", concurrency=1)):
                heard = asyncio.Event()
                await far.subscriptions.listen(far.keys.delivery_channel(worker.id), lambda _: heard.set())
                proxy.messages.set()
                await within(heard.wait())
                # What would be requeued goes to the front, before this one.
                await near.add(holding.hold)("after", LARGE)
                await holding.has("after")
                holding.over.set()
                await eventually(lambda: is_empty(near), "all is done")
    assert holding.names() == {"last-direct": 1, "read": 1, "last": 1, "after": 1}


@pytest.mark.parametrize("meanwhile", ["replaced", "cancelled"])
async def test_a_direct_delivery_message_that_comes_late_starts_nothing_that_no_longer_counts(
    harness: Harness, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is held up for longer than a second. When
    it comes, its task has been replaced, or was cancelled."""
    # The look that would find the run by itself is later.
    monkeypatch.setattr(unknown_deliveries, "CHECK_SECONDS", 600.0)
    server, holding = harness.server(), Holding()
    async with Proxy(server) as proxy:
        far, near = await harness.docket(lease=4, url=proxy.url), await harness.docket(lease=4, url=server.url)
        for docket in (far, near):
            docket.register(holding.hold)
        async with working(await harness.worker(far, name="far", concurrency=3)) as worker:
            await eventually(lambda: is_member(near, "offers", worker), "it has offered a slot")
            proxy.messages.clear()
            await near.add(holding.hold, key="last-direct")("old")
            assert await near.server.client.hget(near.key("last-direct"), worker.id), "it was delivered directly"
            if meanwhile == "replaced":
                await near.replace(holding.hold, near.now() + timedelta(hours=1), "last-direct")("new")
            else:
                await near.cancel("last-direct")
            await asyncio.sleep(1.5)
            heard = asyncio.Event()
            await far.subscriptions.listen(far.keys.delivery_channel(worker.id), lambda _: heard.set())
            proxy.messages.set()
            await within(heard.wait())
            # Read, not delivered directly: the worker goes on.
            await near.add(holding.hold)("after", LARGE)
            await holding.has("after")
            if meanwhile == "cancelled":
                await eventually(lambda: is_cancelled(near, "last-direct"), "the order reaches it, begun or not")
            holding.over.set()
    assert "old" not in holding.names() or meanwhile == "cancelled"
    assert "new" not in holding.names()


async def is_cancelled(docket: Docket, key: str) -> bool:
    execution = await docket.get_execution(key)
    return execution is not None and execution.state is ExecutionState.CANCELLED


async def is_empty(docket: Docket) -> bool:
    return (await docket.snapshot()).total_tasks == 0


async def test_a_task_whose_claim_was_not_answered_does_not_wait_behind_a_busy_worker(harness: Harness) -> None:
    docket, holding = await harness.docket(lease=60), Holding()
    docket.register(holding.hold)
    async with working(await harness.worker(docket, name="busy", concurrency=2)) as busy:
        for name in ("a", "b"):
            await docket.add(holding.hold)(name)
        await holding.has("a", "b")
        # As if this claim's answer had been lost on its way to the worker.
        await docket.add(holding.hold, key="lost")("lost")
        [lost] = await docket.ledger.deliveries.take(busy.id, busy.name_json, 1) or []
        assert lost.key == "lost"
        async with working(await harness.worker(docket, name="idle", concurrency=1)):
            await docket.server.client.client_kill_filter(_type="pubsub")
            await holding.has("lost")
            assert ("lost", "idle") in holding.began
            holding.over.set()
            await eventually(lambda: is_empty(docket), "all is done")
    assert holding.names() == {"a": 1, "b": 1, "lost": 1}


async def test_slots_of_a_run_that_was_replaced_while_its_worker_was_cut_off_are_free_again(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.server()
    began: list[str] = []

    async def limited(name: str, group: Annotated[str, ConcurrencyLimit(1)]) -> str:
        began.append(name)
        if name == "first":
            await asyncio.Event().wait()
        return name

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        for docket in (far, near):
            docket.register(limited)
        async with working(await harness.worker(far, name="far")) as worker:
            id = worker.id
            await near.add(limited, key="k")("first", "g")
            await eventually(lambda: began == ["first"], "it runs")
            with caplog.at_level(logging.WARNING):
                proxy.vanish()
                replacement = await near.replace(limited, datetime.now(UTC), "k")("second", "g")
                await eventually(lambda: "running tasks are given up" in caplog.text, "the worker notices")
            proxy.reappear()
            assert await replacement.get_result(timeout=WAIT_LIMIT) == "second"
            assert worker.id == id, "nobody declared it dead"
            assert not await near.server.client.hlen(near.key("replaced-runs"))
    assert began == ["first", "second"]


async def test_a_task_given_up_by_a_worker_that_was_cut_off_begins_again_as_soon_as_the_server_is_reachable(
    harness: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not found by the look for unknown deliveries, but requeued.
    monkeypatch.setattr(unknown_deliveries, "RECHECK_SECONDS", 600.0)
    server = harness.server()
    began: list[str] = []
    over = asyncio.Event()

    async def note(name: str) -> None:
        began.append(name)
        await over.wait()

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        for docket in (far, near):
            docket.register(note)
        async with working(await harness.worker(far, name="far")) as worker:
            execution = await near.add(note, key="k")("k")
            await eventually(lambda: began == ["k"], "it runs")
            with caplog.at_level(logging.WARNING):
                proxy.vanish()
                await eventually(lambda: "running tasks are given up" in caplog.text, "the worker notices")
            proxy.reappear()
            await eventually(lambda: len(began) == 2, "it runs again")
            assert worker.is_working
            over.set()
            await execution.get_result(timeout=WAIT_LIMIT)
    await execution.sync()
    assert execution.redelivered
    assert began == ["k", "k"]
