"""Arguments, results and exceptions of any size, as a user meets them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from docket import Docket, ExecutionState, Perpetual, Retry, Worker
from docket.errors import ExecutionCancelled, Undecodable
from docket.ledger.queries import Source, TaskQuery
from tests.running import at_work
from tests.waiting import WAIT_LIMIT, ends, eventually

KB = 1024
LARGE = 300 * KB


async def echo(value: bytes) -> bytes:
    return value


async def payloads(docket: Docket) -> list[int]:
    """The sizes of what is stored apart."""
    async with docket.redis() as redis:
        names = [name async for name in redis.scan_iter(match=f"{docket.prefix}:payload:=*")]
        return sorted([await redis.strlen(name) for name in names])


@pytest.mark.parametrize("size", [0, 3 * KB, 4 * KB, 5 * KB, 64 * KB, LARGE, 4 * KB * KB])
async def test_a_value_of_any_size_goes_through_a_task_and_back(docket: Docket, size: int) -> None:
    docket.register(echo)
    value = b"v" * size
    execution = await docket.add(echo)(value)
    found = await docket.get_execution(execution.key)
    assert found is not None
    assert found.args == (value,)
    snapshot = await docket.snapshot()
    assert snapshot.future[0].args == (value,)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await execution.get_result(timeout=WAIT_LIMIT) == value
    found = await docket.get_execution(execution.key)
    assert found is not None
    assert found.args == (value,)
    assert await found.get_result() == value


async def test_queries_tell_how_large_the_arguments_are(docket: Docket) -> None:
    await docket.add(echo, key="large")(b"v" * LARGE)
    for query in (TaskQuery(), TaskQuery(function="echo")):
        for with_calls in (True, False):
            page = await docket.ledger.queries.find(Source.EVERY, query, None, 100, 100, with_calls=with_calls)
            (row,) = page.tasks
            assert LARGE < row.call_size < LARGE + KB


async def test_a_large_exception_reaches_its_waiter_whole(docket: Docket) -> None:
    async def explode() -> None:
        raise ValueError("x" * LARGE)

    docket.register(explode)
    execution = await docket.add(explode)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    with pytest.raises(ValueError, match="x") as caught:
        await execution.get_result(timeout=WAIT_LIMIT)
    assert len(str(caught.value)) == LARGE


async def test_many_large_calls_of_one_add_many_are_all_scheduled(docket: Docket) -> None:
    docket.register(echo)
    calls = [docket.call(echo, key=f"{n}")(bytes([n]) * (LARGE if n % 2 else 10)) for n in range(30)]
    executions = await docket.add_many(calls)
    assert {e.disposition.name for e in executions} == {"SCHEDULED"}
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    for n, execution in enumerate(executions):
        assert await execution.get_result(timeout=WAIT_LIMIT) == bytes([n]) * (LARGE if n % 2 else 10)


async def test_retries_and_successors_have_the_large_arguments_they_should(docket: Docket) -> None:
    seen: list[bytes] = []

    async def stumble(value: bytes, retry: Retry = Retry(attempts=3)) -> None:
        seen.append(value[:1])
        assert len(value) == LARGE
        raise ValueError("again")

    async def grow(value: bytes, perpetual: Perpetual = Perpetual()) -> None:
        seen.append(value[:1])
        assert len(value) == LARGE
        perpetual.perpetuate(bytes([value[0] + 1]) * LARGE)

    await docket.add(stumble, key="stumble")(b"s" * LARGE)
    await docket.add(grow, key="grow")(b"a" * LARGE)
    async with Worker(docket) as worker:
        await worker.run_at_most({"grow": 4})
    assert sorted(seen) == sorted([b"s"] * 3 + [b"a", b"b", b"c", b"d"])
    # Those of the finished tasks, and no others.
    assert len(await payloads(docket)) == 2


async def test_a_task_whose_arguments_were_deleted_is_buried_and_harms_no_other(docket: Docket) -> None:
    docket.register(echo)
    lost = await docket.add(echo, key="lost")(b"v" * LARGE)
    async with docket.redis() as redis:
        async for name in redis.scan_iter(match=f"{docket.prefix}:payload:=*"):
            await redis.delete(name)
    found = await docket.get_execution("lost")
    assert found is not None
    assert isinstance(found.schedule_exception, Undecodable)
    other = await docket.add(echo)(b"v" * LARGE)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert len(await other.get_result(timeout=WAIT_LIMIT)) == LARGE
    with pytest.raises(Undecodable, match="are gone"):
        await lost.get_result(timeout=WAIT_LIMIT)


async def test_a_replaced_run_that_waits_for_its_arguments_does_not_count(docket: Docket) -> None:
    docket.register(echo)
    await docket.add(echo, key="task")(b"a" * LARGE)
    again = await docket.replace(echo, docket.now(), "task")(b"b" * LARGE)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert (await again.get_result(timeout=WAIT_LIMIT))[:1] == b"b"
    assert len(await payloads(docket)) == 2


# On a cluster a node knows only its own listeners, so the result is stored for a while.
@pytest.mark.one_server
async def test_without_finished_records_nothing_stays(docket_url: str) -> None:
    async with Docket("none", docket_url, execution_ttl=timedelta(0)) as docket:

        async def explode(value: bytes) -> bytes:
            raise ValueError("x" * LARGE)

        docket.register(echo)
        docket.register(explode)
        await docket.add(echo)(b"v" * LARGE)
        await docket.add(explode)(b"v" * LARGE)
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        assert await payloads(docket) == []


async def test_a_worker_that_stops_requeues_what_waits_for_its_arguments(docket: Docket) -> None:
    """The arguments do not arrive: the connection for large values is held up."""
    docket.register(echo)
    executions = [await docket.add(echo)(b"v" * LARGE) for _ in range(3)]
    turn = docket.server._bulk_turns[1]._lock
    async with Worker(docket) as worker:
        await turn.acquire()
        running = asyncio.create_task(worker.run_forever())
        await eventually(lambda: worker.is_working and len(worker.runs) == 3, "three runs are claimed")
        worker.stop()
        await ends(running)
        turn.release()
    for execution in executions:
        await execution.sync()
        assert execution.state is ExecutionState.QUEUED
        assert not execution.redelivered
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert len(await executions[0].get_result(timeout=WAIT_LIMIT)) == LARGE


async def test_a_task_that_waits_for_its_arguments_can_be_cancelled(docket: Docket) -> None:
    docket.register(echo)
    turn = docket.server._bulk_turns[1]._lock
    executions = [await docket.add(echo, key=f"{n}")(b"v" * LARGE) for n in range(3)]
    await turn.acquire()
    async with Worker(docket) as worker, at_work(worker):
        await eventually(lambda: len(worker.runs) == 3, "three runs are claimed")
        for execution in (executions[0], executions[2]):
            await docket.cancel(execution.key)
            with pytest.raises(ExecutionCancelled):
                await execution.get_result(timeout=WAIT_LIMIT)
        turn.release()
        assert len(await executions[1].get_result(timeout=WAIT_LIMIT)) == LARGE
