"""`add_many` with many calls: usual calls share a
cheaper request, and nobody can tell the difference."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta

import pytest

from docket import Disposition, Docket, ExecutionState, TaskCall, Worker
from docket.errors import Unserializable
from tests.running import run_everything
from tests.times import later, now


async def noop(*args: object) -> None: ...


async def test_a_task_is_stored_as_add_stores_it(docket: Docket) -> None:
    due = later()
    one = await docket.add(noop, when=due)("argument")
    (many,) = await docket.add_many([docket.call(noop, when=due)("argument")])

    alone, bulk = await docket.get_execution(one.key), await docket.get_execution(many.key)

    assert alone is not None
    assert bulk is not None
    assert alone.record is not None
    assert bulk.record is not None
    for name in ("version", "location", "flags", "attempt", "losses", "generation", "due_ms", "function_name"):
        assert getattr(bulk.record, name) == getattr(alone.record, name), name
    # The calls are equal but for their trace contexts, if there are any.
    assert len(bulk.record.call) == len(alone.record.call)
    assert (bulk.args, bulk.kwargs) == (alone.args, alone.kwargs) == (("argument",), {})
    assert (many.state, many.generation) == (one.state, one.generation) == (ExecutionState.SCHEDULED, 1)


async def test_tasks_run_in_the_order_of_their_calls(docket: Docket) -> None:
    seen: list[int] = []

    async def note(number: int) -> None:
        seen.append(number)

    executions = await docket.add_many([docket.call(note)(number) for number in range(1_000)])
    async with Worker(docket, concurrency=1) as worker:
        await worker.run_until_finished()

    assert {execution.state for execution in executions} == {ExecutionState.QUEUED}
    assert seen == list(range(1_000))


async def test_usual_calls_and_others_keep_their_places(docket: Docket) -> None:
    """Own keys, large calls and calls that cannot be stored interrupt the usual ones."""
    seen: list[object] = []

    async def note(label: object, *more: object) -> None:
        seen.append(label)

    call = docket.call(note)
    executions = await docket.add_many(
        [
            call("first"),
            docket.call(note, key="own")("own"),
            docket.call(note, key="own")("own again"),
            call("second"),
            call(label for label in "ab"),
            call("large", b"x" * 300_000),
            call("third"),
            docket.call(note, when=later())("later"),
        ]
    )
    assert [execution.disposition for execution in executions] == [
        Disposition.SCHEDULED,
        Disposition.SCHEDULED,
        Disposition.ALREADY_SCHEDULED,
        Disposition.SCHEDULED,
        Disposition.FAILED,
        Disposition.SCHEDULED,
        Disposition.SCHEDULED,
        Disposition.SCHEDULED,
    ]
    assert isinstance(executions[4].schedule_exception, Unserializable)
    assert executions[7].state is ExecutionState.SCHEDULED

    await docket.cancel(executions[7].key)
    async with Worker(docket, concurrency=1) as worker:
        await worker.run_until_finished()
    assert seen == ["first", "own", "second", "large", "third"]


async def test_of_two_calls_with_one_key_the_first_counts_in_any_batch(docket: Docket) -> None:
    calls = [docket.call(noop, key=str(number % 300), when=later())(number) for number in range(900)]

    executions = await docket.add_many(calls)

    assert [execution.disposition for execution in executions] == (
        [Disposition.SCHEDULED] * 300 + [Disposition.ALREADY_SCHEDULED] * 600
    )
    stored = await docket.get_execution("7")
    assert stored is not None
    assert stored.args == (7,)


async def test_an_iterator_that_raises_schedules_nothing(docket: Docket) -> None:
    def calls() -> Iterator[TaskCall]:
        for number in range(500):
            yield docket.call(noop)(number)
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        await docket.add_many(calls())

    assert (await docket.snapshot()).total_tasks == 0


async def test_the_same_calls_sent_twice_are_stored_once(docket: Docket) -> None:
    calls = [docket.call(noop, when=later())(number) for number in range(300)]

    await docket.add_many(calls)
    again = await docket.add_many(calls)

    assert {execution.disposition for execution in again} == {Disposition.ALREADY_SCHEDULED}
    assert (await docket.snapshot()).total_tasks == 300


async def test_struck_calls_are_not_stored(docket: Docket) -> None:
    await docket.strike(noop, "args", "==", None)
    await docket.strike("other")

    executions = await docket.add_many([docket.call(noop)(number) for number in range(300)])

    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    await docket.strike(noop)
    struck = await docket.add_many([docket.call(noop)(number) for number in range(300)])
    assert {execution.disposition for execution in struck} == {Disposition.STRUCK}
    assert (await docket.snapshot()).total_tasks == 300


async def test_a_cancelled_caller_leaves_a_docket_that_works(docket: Docket) -> None:
    adding = asyncio.create_task(docket.add_many([docket.call(noop)(number) for number in range(5_000)]))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding

    (execution,) = await docket.add_many([docket.call(noop)()])
    await run_everything(docket)

    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED


async def test_a_call_that_is_due_by_the_callers_clock_is_ready(docket: Docket) -> None:
    executions = await docket.add_many([docket.call(noop, when=now() - timedelta(days=1))(n) for n in range(3)])

    assert {execution.state for execution in executions} == {ExecutionState.QUEUED}


# Streams of calls


async def test_a_stream_of_calls_is_scheduled_in_order(docket: Docket) -> None:
    calls = (docket.call(noop, when=later())(number) for number in range(25))

    executions = [execution async for execution in docket.add_stream(calls, chunk_size=10)]

    assert [execution.args for execution in executions] == [(number,) for number in range(25)]
    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    assert (await docket.snapshot()).total_tasks == 25


async def test_an_async_source_is_read_as_it_comes(docket: Docket) -> None:
    async def calls() -> AsyncGenerator[TaskCall]:
        for number in range(5):
            await asyncio.sleep(0)
            yield docket.call(noop, when=later())(number)

    executions = [execution async for execution in docket.add_stream(calls(), chunk_size=2)]

    assert [execution.args for execution in executions] == [(number,) for number in range(5)]


async def test_a_stream_reads_at_most_two_chunks_ahead(docket: Docket) -> None:
    read = 0

    def calls() -> Iterator[TaskCall]:
        nonlocal read
        for number in range(1_000):
            read += 1
            yield docket.call(noop, when=later())(number)

    stream = docket.add_stream(calls(), chunk_size=10)
    await anext(stream)

    assert read <= 20
    await stream.aclose()
    assert (await docket.snapshot()).total_tasks == read


async def test_a_source_that_raises_leaves_the_chunks_before(docket: Docket) -> None:
    def calls() -> Iterator[TaskCall]:
        for number in range(25):
            yield docket.call(noop, when=later())(number)
        raise RuntimeError("the source is gone")

    stream = docket.add_stream(calls(), chunk_size=10)
    seen = [await anext(stream) for _ in range(20)]
    with pytest.raises(RuntimeError, match="the source is gone"):
        await anext(stream)

    assert {execution.disposition for execution in seen} == {Disposition.SCHEDULED}
    assert (await docket.snapshot()).total_tasks == 20


async def test_a_chunk_of_a_stream_has_at_least_one_call(docket: Docket) -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        docket.add_stream([], chunk_size=0)


async def test_a_call_that_is_not_a_call_is_refused_before_anything_is_sent(docket: Docket) -> None:
    calls = [docket.call(noop, when=later())(1), docket.call(noop)]
    with pytest.raises(TypeError, match=r"calls\[1\] is .*docket\.call\(function\)\(arguments\)"):
        await docket.add_many(calls)  # pyright: ignore[reportArgumentType] - the mistake that it tests
    with pytest.raises(TypeError, match=r"calls\[0\] is 5"):
        await docket.replace_many(5 for _ in range(2))  # pyright: ignore[reportArgumentType] - as above
    assert (await docket.snapshot()).total_tasks == 0
