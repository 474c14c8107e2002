"""Networks that go silent, break and come back (rows B6, B13, C4, C5, C15)."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from chaos.proxy import Proxy
from docket import CurrentExecution, CurrentWorker, Docket, Execution, ExecutionState, Worker
from docket._aio import Backoff
from docket.execution import waiting
from tests.waiting import WAIT_LIMIT, ends, eventually, within

from .conftest import Harness
from .counted_tasks import CountedTasks, working


async def test_a_worker_that_is_cut_off_gives_up_its_calls_before_others_may_start_them(harness: Harness) -> None:
    server = harness.server()
    events: list[tuple[str, str, float]] = []
    release = asyncio.Event()

    async def task(worker: Worker = CurrentWorker()) -> str:
        events.append(("start", worker.name, time.monotonic()))
        try:
            await release.wait()
        except asyncio.CancelledError:
            events.append(("cancelled", worker.name, time.monotonic()))
            raise
        return worker.name

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        near.register(task)
        async with working(await harness.worker(far, name="far")):
            execution = await far.add(task, key="task")()
            await eventually(lambda: events, "it runs")
            async with working(await harness.worker(near, name="near")):
                proxy.vanish()
                await eventually(lambda: len(events) == 3, "the other has it")
                assert [(what, who) for what, who, _ in events] == [
                    ("start", "far"),
                    ("cancelled", "far"),
                    ("start", "near"),
                ]
                release.set()
                watched = await near.get_execution(execution.key)
                assert watched is not None
                assert await watched.get_result(timeout=WAIT_LIMIT) == "near"
            proxy.reappear()
            again = await near.add(task, key="again")()
            assert await again.get_result(timeout=WAIT_LIMIT) == "far", "it works again, now that it can"
    assert [what for what, _, _ in events].count("start") == 3


async def test_connections_that_went_silent_are_noticed_in_seconds(harness: Harness) -> None:
    """As behind a router that forgot them: nothing is
    refused, nothing arrives, but new connections work."""
    server = harness.server()
    async with Proxy(server) as proxy:
        docket = await harness.docket(url=proxy.url)
        near = await harness.docket(url=server.url)
        counted = CountedTasks(docket)
        async with working(await harness.worker(docket)):
            running = await counted.hold("running")
            result = asyncio.create_task(running.get_result(timeout=WAIT_LIMIT))
            await asyncio.sleep(0.1)
            proxy.freeze()
            await near.add(counted.short, key="after")()
            await eventually(lambda: counted.finished["after"], "it works again")
            counted.release.set()
            assert await result == "running", "also those who wait for results hear again"
    assert counted.starts["running"] == 1
    assert counted.cancelled == {}


async def test_a_cancel_that_is_sent_while_nobody_listens_is_seen_at_the_next_renewal(harness: Harness) -> None:
    server = harness.server()
    async with Proxy(server) as proxy:
        docket, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        counted = CountedTasks(docket)
        async with working(await harness.worker(docket)):
            await counted.hold("running")
            proxy.refuses_subscriptions = True
            proxy.break_all(subscriptions_only=True)
            await near.cancel("running")
            await eventually(lambda: counted.cancelled["running"], "the call is cancelled")
            proxy.refuses_subscriptions = False
            # And once it listens again, it hears again.
            counted.starts.clear()
            await counted.hold("again")
            await eventually(lambda: has_subscribers(near), "it listens")
            await near.cancel("again")
            await eventually(lambda: counted.cancelled["again"], "the call is cancelled")
            execution = await near.get_execution("running")
            assert execution is not None
            assert execution.state is ExecutionState.CANCELLED


async def has_subscribers(docket: Docket) -> bool:
    async with docket.redis() as redis:
        return bool(await redis.pubsub_channels())


@pytest.fixture
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter does not look at its task now and then: it must hear of the end."""
    monkeypatch.setattr(waiting, "SAFETY_SECONDS", 3600.0)


@pytest.mark.usefixtures("no_safety_net")
async def test_a_task_that_ends_while_its_waiter_subscribes_wakes_the_waiter(harness: Harness) -> None:
    server = harness.server()
    async with Proxy(server) as proxy:
        docket, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        counted = CountedTasks(near)
        async with working(await harness.worker(near)):
            execution = await counted.hold("task")
            watched = await docket.get_execution(execution.key)
            assert watched is not None
            # The waiter has looked, and its subscription is on the way.
            proxy.subscriptions.clear()
            result = asyncio.create_task(watched.get_result(timeout=WAIT_LIMIT))
            await asyncio.sleep(0.3)
            counted.release.set()
            await execution.get_result(timeout=WAIT_LIMIT)
            assert not result.done()
            proxy.subscriptions.set()
            assert await result == "task"


@pytest.mark.usefixtures("no_safety_net")
async def test_a_waiter_survives_the_loss_of_its_connection(harness: Harness) -> None:
    server = harness.server()
    async with Proxy(server) as proxy:
        docket, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        counted = CountedTasks(near)
        async with working(await harness.worker(near)):
            execution = await counted.hold("task")
            watched = await docket.get_execution(execution.key)
            assert watched is not None
            result = asyncio.create_task(watched.get_result(timeout=WAIT_LIMIT))
            await asyncio.sleep(0.2)
            # Everything is lost, and the end is announced while nobody listens.
            proxy.refuse(True)
            counted.release.set()
            await execution.get_result(timeout=WAIT_LIMIT)
            proxy.refuse(False)
            assert await result == "task"


async def test_many_workers_come_back_after_an_outage_without_a_stampede(harness: Harness) -> None:
    server = harness.server()
    async with Proxy(server) as proxy, AsyncExitStack() as stack:
        for i in range(20):
            docket = await harness.docket(f"docket-{i}", url=proxy.url, lease=4.0)
            CountedTasks(docket)
            await stack.enter_async_context(working(await harness.worker(docket)))
        pulses = [CountedTasks(await harness.docket(f"docket-{i}", url=server.url)) for i in range(20)]
        proxy.attempts.clear()
        proxy.refuse(True)
        await asyncio.sleep(3)
        proxy.refuse(False)
        assert len(proxy.attempts) < 20 * 60, "they back off"
        await asyncio.gather(*(counted.works("after") for counted in pulses))


def test_pauses_between_attempts_grow_and_differ() -> None:
    fleet = [Backoff(most=5.0) for _ in range(50)]
    pauses: list[float] = []
    for attempt in range(8):
        pauses = sorted(backoff.next_pause() for backoff in fleet)
        spread = pauses[-1] - pauses[0]
        busiest = max(sum(start <= pause < start + spread / 10 for pause in pauses) for start in pauses)
        assert busiest < 25, f"attempt {attempt}: half of the fleet comes back at once"
    assert pauses[-1] > 2.5, "later attempts are further apart"
    fleet[0].reset()
    assert fleet[0].next_pause() <= 0.5, "and after a success the next attempt comes soon"


async def test_a_thousand_calls_at_once_need_a_handful_of_connections(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()

    async def echo(n: int, execution: Execution = CurrentExecution()) -> int:
        await execution.progress.increment()
        return n

    most = 0

    with server.client(decode_responses=True) as probe:
        async with working(await harness.worker(docket, concurrency=1000)):

            async def call(n: int) -> int:
                execution = await docket.add(echo)(n)
                return await execution.get_result(timeout=WAIT_LIMIT)

            calls = [asyncio.create_task(call(n)) for n in range(1000)]
            while not all(task.done() for task in calls):
                clients = [c for c in probe.client_list() if c["cmd"] != "client|list"]
                most = max(most, len(clients))
                await asyncio.sleep(0.01)
            assert [task.result() for task in calls] == list(range(1000))
    assert 0 < most <= 16, most


async def test_a_server_that_vanishes_cannot_keep_a_worker_or_a_docket_from_closing(harness: Harness) -> None:
    server = harness.server()
    async with Proxy(server) as proxy:
        docket = Docket(harness.name, proxy.url, heartbeat_interval=timedelta(seconds=0.25), missed_heartbeats=4)
        await docket.__aenter__()
        worker = await Worker(docket).__aenter__()
        task = asyncio.create_task(worker.run_forever())
        await eventually(lambda: is_registered(docket), "it works")
        proxy.vanish()
        task.cancel()
        await ends(task)
        await worker.__aexit__(None, None, None)
        await within(docket.__aexit__(None, None, None))


async def is_registered(docket: Docket) -> bool:
    return bool(await docket.workers())


async def test_a_result_is_that_of_the_task_waited_for_though_the_subscription_lags(harness: Harness) -> None:
    server = harness.server()
    async with Proxy(server) as proxy:
        near = await harness.docket()
        far = await harness.docket(url=proxy.url)
        second_may_end = asyncio.Event()

        async def say(what: str) -> str:
            if what == "second":
                await second_may_end.wait()
            return what

        far.register(say)
        near.register(say)
        async with working(await harness.worker(near)):
            listening = asyncio.Event()
            watching = asyncio.create_task(_follow(far, "k", listening))
            await within(listening.wait())
            proxy.messages.clear()
            first = await near.add(say, key="k")("first")
            assert await first.get_result(timeout=WAIT_LIMIT) == "first"

            second = await far.add(say, key="k")("second")
            result = asyncio.create_task(second.get_result(timeout=WAIT_LIMIT))

            async def is_running() -> bool:
                return (await near.ledger.tasks.get("k")).run is not None

            await eventually(is_running, "the second task runs")
            # The first ending arrives only now.
            proxy.messages.set()
            await asyncio.wait([result], timeout=0.5)
            second_may_end.set()
            assert await result == "second"
            watching.cancel()
            await asyncio.wait([watching])


async def _follow(docket: Docket, key: str, ready: asyncio.Event) -> None:
    async for _ in docket.watch(key, ready):
        pass


async def test_no_option_of_the_url_lets_a_silent_connection_outlast_the_lease(harness: Harness) -> None:
    """The renewal thread goes by the lease, whatever the URL says about time-outs."""
    server = harness.server()
    options = "socket_timeout=30&socket_connect_timeout=30&health_check_interval=1&retry_on_timeout=true"
    async with Proxy(server) as proxy:
        far = await harness.docket(url=f"{proxy.url}?{options}")
        near = await harness.docket(url=server.url)
        counted = CountedTasks(far)
        near.register(counted.long)
        async with working(await harness.worker(far, name="far")), working(await harness.worker(near, name="near")):
            held = [await counted.hold(f"held-{number}") for number in range(4)]
            for _ in range(3):
                proxy.freeze()
                # Longer than the lease, and not so long that
                # the silence would have been noticed by luck.
                await asyncio.sleep(2.5)
            counted.release.set()
            for execution in held:
                await execution.get_result(timeout=WAIT_LIMIT)
    assert set(counted.starts.values()) == {1}, counted.starts
