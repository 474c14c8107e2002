"""Links that carry little: whoever has large values to send
or to fetch harms nobody, and gets there in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from chaos.proxy import Proxy
from docket import CurrentExecution, CurrentWorker, Execution, ExecutionState, Worker
from docket.storage import scripts
from docket.storage import server as storage_server
from docket.worker.running import settlement_writer
from tests.waiting import WAIT_LIMIT, ends, eventually, within

from .conftest import Harness
from .counted_tasks import working


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines in the proportion of small values to
    small rates, so that the tests take seconds."""
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 0.6)
    monkeypatch.setattr(settlement_writer, "ANSWER_SECONDS", 0.6, raising=False)
    monkeypatch.setattr("docket.storage.client.pipeline.SLOWEST_BYTES_PER_SECOND", 1e9, raising=False)


async def test_endings_that_are_late_together_are_written_in_smaller_batches(harness: Harness, impatient: None) -> None:
    """Twelve results of 20 kB at 100 kB a second: all of them
    take more than two seconds, and an answer is due in 0.6."""
    server = harness.server()
    starts: list[int] = []
    released = asyncio.Event()

    async def task(number: int) -> bytes:
        starts.append(number)
        await released.wait()
        return bytes([number]) * 20_000

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url, lease=8), await harness.docket(url=server.url)
        far.register(task)
        near.register(task)
        executions = [await near.add(task)(number) for number in range(12)]
        async with working(await harness.worker(far, concurrency=12)):
            await eventually(lambda: len(starts) == 12, "they run")
            proxy.bytes_per_second = 100_000
            released.set()
            for number, execution in enumerate(executions):
                assert await execution.get_result(timeout=WAIT_LIMIT) == bytes([number]) * 20_000
            proxy.bytes_per_second = None
    assert sorted(starts) == list(range(12))


async def test_a_large_result_over_a_slow_link_holds_up_no_other_ending_and_arrives(
    harness: Harness, impatient: None
) -> None:
    """1.4 MB at 600 kB a second, where an answer is due in 0.6 s, with leases of two seconds."""
    server = harness.server()
    starts: Counter[str] = Counter()
    order: list[str] = []

    async def produce(size: int, execution: Execution = CurrentExecution()) -> bytes:
        starts[execution.key] += 1
        return b"r" * size

    async def wait_for(execution: Execution) -> bytes:
        value = await execution.get_result(timeout=WAIT_LIMIT)
        order.append(execution.key)
        return value

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        for docket in (far, near):
            docket.register(produce)
        proxy.bytes_per_second = 600_000
        worker = await harness.worker(far)
        async with working(worker):
            large = asyncio.create_task(wait_for(await near.add(produce, key="large")(1_400_000)))
            await eventually(lambda: starts["large"], "it runs")
            others = [await near.add(produce, key=f"small {n}")(10) for n in range(20)]
            for execution in others:
                assert len(await wait_for(execution)) == 10
            await eventually(lambda: "waited" in (worker.health_problem() or ""), "the health check tells")
            assert len(await large) == 1_400_000
            await eventually(lambda: worker.health_problem() is None, "all is well again")
    assert order[-1] == "large", "the others did not wait for it"
    assert set(starts.values()) == {1}, "no lease was lost"


async def test_large_arguments_over_a_slow_link_start_one_after_the_other(harness: Harness, impatient: None) -> None:
    """Ten times 200 kB at 200 kB a second, for a worker that is alone."""
    server = harness.server()
    starts: Counter[str] = Counter()

    async def consume(value: bytes, execution: Execution = CurrentExecution()) -> int:
        starts[execution.key] += 1
        return len(value)

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        far.register(consume)
        executions = [await near.add(consume)(b"a" * 200_000) for _ in range(10)]
        proxy.bytes_per_second = 200_000
        async with working(await harness.worker(far)):
            for execution in executions:
                assert await execution.get_result(timeout=WAIT_LIMIT) == 200_000
    assert set(starts.values()) == {1}
    assert len(starts) == 10


async def test_an_idle_worker_helps_one_that_cannot_fetch_its_arguments(harness: Harness, impatient: None) -> None:
    server = harness.server()
    ran: list[str] = []

    async def consume(value: bytes, worker: Worker = CurrentWorker()) -> int:
        ran.append(worker.name)
        return len(value)

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url), await harness.docket(url=server.url)
        far.register(consume)
        near.register(consume)
        async with working(slow := await harness.worker(far, name="slow")):
            proxy.bytes_per_second = 100_000
            executions = [await near.add(consume)(b"a" * 1_000_000) for _ in range(10)]
            await eventually(lambda: slow.is_working and len(slow.runs) == 10, "the slow one has claimed them")
            async with working(await harness.worker(near, name="quick")):
                for execution in executions:
                    assert await execution.get_result(timeout=WAIT_LIMIT) == 1_000_000
            proxy.bytes_per_second = None
    # Alone the slow worker takes 100 seconds.
    assert ran.count("quick") >= 8
    assert len(ran) == 10


async def test_a_worker_that_stops_lets_go_of_a_result_that_it_cannot_write(harness: Harness) -> None:
    server = harness.server()
    produced = asyncio.Event()

    async def produce() -> bytes:
        produced.set()
        return b"r" * 7_000_000

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url, lease=30), await harness.docket(url=server.url)
        far.register(produce)
        near.register(produce)
        proxy.bytes_per_second = 300_000
        worker = await harness.worker(far, grace_period=timedelta(seconds=1))
        running = asyncio.create_task(worker.run_forever())
        execution = await near.add(produce)()
        await within(produced.wait())
        worker.stop()
        # The result alone takes 23 seconds: a worker that
        # waited for it would have finished the task.
        await ends(running)
        proxy.bytes_per_second = None
        await execution.sync()
        assert execution.state is ExecutionState.QUEUED
        assert execution.redelivered
        async with working(await harness.worker(near)):
            assert len(await execution.get_result(timeout=WAIT_LIMIT)) == 7_000_000


async def test_a_small_call_beside_large_ones_is_scheduled_at_once(harness: Harness) -> None:
    """Ten calls of 100 kB at 200 kB a second, and one of a few bytes in the same moment."""
    server = harness.server()

    async def consume(value: bytes) -> None: ...

    async with Proxy(server) as proxy:
        docket = await harness.docket(url=proxy.url)
        docket.register(consume)
        proxy.bytes_per_second = 200_000
        order: list[str] = []

        async def add(name: str, size: int) -> None:
            await docket.add(consume, key=name)(b"a" * size)
            order.append(name)

        large = [asyncio.create_task(add(f"large {n}", 100_000)) for n in range(10)]
        await asyncio.gather(add("small", 10), *large)
        proxy.bytes_per_second = None
    assert order[0] == "small"
    assert sorted(order[1:]) == sorted(f"large {n}" for n in range(10)), "and all of them are scheduled"


async def test_what_a_producer_stored_that_died_before_it_scheduled_the_call_expires(harness: Harness) -> None:
    docket = await harness.docket()

    async def consume(value: bytes) -> None: ...

    docket.register(consume)

    async def die(order: object) -> None:
        raise asyncio.CancelledError

    scheduling = docket.scheduler
    scheduling._batcher.call = die  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await docket.add(consume, key="task")(b"a" * 100_000)
    assert await docket.get_execution("task") is None
    async with docket.redis() as redis:
        (name,) = [name async for name in redis.scan_iter(match=f"{docket.name}:payload:=*")]
        assert 0 < await redis.pttl(name) <= 3_600_000


@pytest.mark.parametrize("size", [20_000, 100_000], ids=["in its ending", "stored apart"])
async def test_a_task_whose_result_never_arrives_is_delivered_again(
    harness: Harness, impatient: None, size: int
) -> None:
    """A path that carries small packets and no large
    one: renewals pass, and this ending never does."""
    server, starts, released = harness.server(), list[bool](), asyncio.Event()
    # Scripts are known to the server: they would be large packets, too.
    for script in (Path(scripts.__file__).parent / "lua").glob("*.lua"):
        server.run("SCRIPT", "LOAD", scripts.load(script.stem).source)

    async def large(execution: Execution = CurrentExecution()) -> bytes:
        starts.append(execution.redelivered)
        await released.wait()
        return bytes(size) if len(starts) == 1 else b"small"

    async with Proxy(server) as proxy:
        docket = await harness.docket(url=proxy.url, lease=1)
        docket.register(large)
        worker = await harness.worker(docket)
        async with working(worker):
            execution = await docket.add(large)()
            await eventually(lambda: starts, "it runs")
            proxy.largest = 8_000
            released.set()
            name = worker.id
            assert await execution.get_result(timeout=WAIT_LIMIT) == b"small"
            assert worker.id == name, "the lease was kept all the time"
    assert starts == [False, True]


async def test_a_worker_that_cannot_even_requeue_lets_its_lease_go(harness: Harness, impatient: None) -> None:
    server = harness.server()
    starts: list[str] = []

    async def task(worker: Worker = CurrentWorker()) -> str:
        starts.append(worker.name)
        return worker.name

    async with Proxy(server) as proxy:
        far, near = await harness.docket(url=proxy.url, lease=1), await harness.docket(url=server.url, lease=1)
        far.register(task)
        near.register(task)
        proxy.swallowed = scripts.load("settle").sha.encode()
        worker = await harness.worker(far, name="far")
        async with working(worker):
            execution = await near.add(task)()
            await eventually(lambda: starts, "it runs")
            name = worker.id
            await eventually(lambda: worker.id != name, "it lets its lease go")
            proxy.swallowed = None
            async with working(await harness.worker(near, name="near")):
                assert await execution.get_result(timeout=WAIT_LIMIT) in ("far", "near")
            assert await (await near.add(task)()).get_result(timeout=WAIT_LIMIT) == "far", "it works again"
