"""What cannot be read, stored, shown or found is that
task's failure, and no other's (rows A6 to A8, C10, C11)."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from docket import CurrentExecution, Docket, Execution, ExecutionState, Logged
from docket.errors import PayloadTooLarge, TaskFailed, Undecodable, Unserializable
from docket.storage.records import read_due
from docket.worker.claiming import fetcher
from docket.worker.lease import reclaimer
from tests.waiting import WAIT_LIMIT, ends, eventually

from . import tasks
from .conftest import Harness

LATER = timedelta(hours=1)

GARBAGE = {
    "nothing": lambda record: b"",
    "a few bytes": lambda record: b"\x01\x02",
    "noise": lambda record: bytes(range(255, 0, -1)),
    "half a record": lambda record: record[:40],
    "broken arguments": lambda record: record[:-5],
    "no arguments": lambda record: record[:-30] + b"\x00" * 30,
}


async def say(word: str) -> str:
    return word


async def tamper(docket: Docket, key: str, change: Callable[[bytes], bytes]) -> None:
    async with docket.redis() as redis:
        record = await redis.hget(docket.key("tasks"), key)
        assert isinstance(record, bytes)
        await redis.hset(docket.key("tasks"), key, change(record))


async def stored(docket: Docket, key: str) -> bytes:
    async with docket.redis() as redis:
        record: Any = await redis.hget(docket.key("tasks"), key)
    return record


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("waits_in", ["stream", "schedule"])
async def test_a_record_that_cannot_be_read_is_buried_and_its_neighbours_run(
    harness: Harness, garbage: Callable[[bytes], bytes], waits_in: str
) -> None:
    docket = await harness.docket()
    when = datetime.now(UTC) + timedelta(seconds=0.5) if waits_in == "schedule" else None
    before = await docket.add(say, when)("before")
    broken = await docket.add(say, when, key="broken")("x" * 100)
    after = await docket.add(say, when)("after")
    await tamper(docket, "broken", garbage)

    assert len((await docket.snapshot()).future) == 3, "the snapshot shows the others"
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    assert await before.get_result() == "before"
    assert await after.get_result() == "after"
    with pytest.raises(Undecodable):
        await broken.get_result(timeout=WAIT_LIMIT)
    await broken.sync()
    assert broken.state is ExecutionState.FAILED
    assert [letter.key async for letter in docket.dead.find()] == ["broken"]


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_record_that_cannot_be_read_can_be_looked_at_cancelled_and_replaced(
    harness: Harness, garbage: Callable[[bytes], bytes]
) -> None:
    docket = await harness.docket()
    for key in ("looked at", "cancelled", "replaced", "cleared"):
        await docket.add(say, datetime.now(UTC) + LATER, key=key)("x" * 100)
        await tamper(docket, key, garbage)

    assert await docket.get_execution("looked at") is not None
    await docket.cancel("cancelled")
    assert {e.key for e in (await docket.snapshot()).future} == {"looked at", "replaced", "cleared"}
    replacement = await docket.replace(say, datetime.now(UTC), "replaced")("new")
    await docket.cancel("looked at")
    assert await docket.clear() == 2
    replacement = await docket.add(say, key="replaced")("new")
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    assert await replacement.get_result() == "new"


async def test_foreign_entries_in_the_stream_are_swept_away(harness: Harness) -> None:
    docket = await harness.docket()
    execution = await docket.add(say)("ours")
    async with docket.redis() as redis:
        await redis.xadd(docket.stream_key, {"foreign": "entry"})
        await redis.xadd(docket.stream_key, {"k": "no such task"})
        await redis.xadd(docket.stream_key, {"a": "1", "b": "2"})
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    assert await execution.get_result() == "ours"
    working = asyncio.create_task((await harness.worker(docket)).run_forever())
    async with docket.redis() as redis:
        await eventually(lambda: is_empty(redis, docket), "the stream is empty")
    working.cancel()
    await ends(working)


async def is_empty(redis: Any, docket: Docket) -> bool:
    return await redis.xlen(docket.stream_key) == 0


@pytest.mark.parametrize("what", ["record", "arguments"])
async def test_what_a_newer_release_wrote_is_left_for_its_workers(
    harness: Harness, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    docket = await harness.docket()
    newer = await docket.add(say, key="newer")("from the future")
    ours = await docket.add(say)("ours")
    # The version is the first byte of the record, and of the
    # envelope round the arguments, behind the function's name.
    record = await stored(docket, "newer")
    call = record.index(b"say") + len(b"say")
    # A trace context of so many bytes lies before the envelope, where somebody traces.
    position = 0 if what == "record" else call + 2 + int.from_bytes(record[call : call + 2], "little")

    def with_version(version: int) -> Callable[[bytes], bytes]:
        return lambda record: record[:position] + bytes([version]) + record[position + 1 :]

    await tamper(docket, "newer", with_version(99))
    working = asyncio.create_task((await harness.worker(docket)).run_forever())
    assert await ours.get_result(timeout=WAIT_LIMIT) == "ours"
    due_times: set[float] = set()

    async def was_met_again() -> bool:
        due_times.add(read_due(await stored(docket, "newer")))
        return len(due_times) >= 3

    await eventually(was_met_again, "it was met, and met again")
    assert caplog.text.count("left for other workers") == 1
    working.cancel()
    await ends(working)
    await newer.sync()
    assert newer.state in (ExecutionState.QUEUED, ExecutionState.SCHEDULED)
    assert (await stored(docket, "newer"))[position] == 99, "nobody has touched the version"

    # A worker of the newer release, for which the version is nothing unknown.
    await tamper(docket, "newer", with_version(1))
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    assert await newer.get_result() == "from the future"
    assert newer.attempt == 1


async def test_a_function_unknown_to_one_worker_is_run_by_the_one_that_knows_it(harness: Harness) -> None:
    docket = await harness.docket()
    ignorant = harness.worker_process(tasks=["only_nap"])
    learned = harness.worker_process(tasks=["only_hold"])
    await harness.at_work(docket, ignorant, learned)
    harness.reports.release("go")
    held = [await docket.add(tasks.hold, key=f"hold-{i}")("go") for i in range(10)]
    naps = [await docket.add(tasks.nap, key=f"nap-{i}")(0) for i in range(10)]
    assert {await e.get_result(timeout=WAIT_LIMIT) for e in held} == {str(learned.pid)}
    assert {await e.get_result(timeout=WAIT_LIMIT) for e in naps} == {str(ignorant.pid)}
    assert harness.reports.count("start") == 20

    # Alone, the ignorant one says so and leaves it for the next that knows it.
    learned.send(signal.SIGTERM)
    assert await learned.ended() == 0
    orphan = await docket.add(tasks.hold, key="orphan")("go")
    await eventually(lambda: "Unknown task 'hold'" in ignorant.output, "it says so")
    assert harness.reports.count("start", "orphan") == 0
    await orphan.sync()
    assert orphan.state is ExecutionState.QUEUED
    successor = harness.worker_process(tasks=["only_hold"])
    assert await orphan.get_result(timeout=WAIT_LIMIT) == str(successor.pid)


@pytest.mark.parametrize(
    "refused", [(), ("-client|unblock",), ("-client",)], ids=["allowed", "no unblock", "no client"]
)
async def test_a_worker_that_waits_is_woken_for_a_task_that_only_it_knows(
    harness: Harness, refused: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server's permissions keep it from
    ending a read: then the connection is closed."""
    monkeypatch.setattr(fetcher, "BLOCK_SECONDS", 600.0)
    # Nor does the sweep tell it again.
    monkeypatch.setattr(reclaimer, "SWEEP_SECONDS", 600.0)
    harness.server()
    docket, ignorant = await harness.docket(lease=60), await harness.docket(lease=60)
    docket.register(say)
    if refused:
        await docket.server.client.execute_command("ACL", "SETUSER", "default", *refused)
    workers = [await harness.worker(d, concurrency=1) for d in (docket, ignorant)]
    working = [asyncio.create_task(worker.run_forever()) for worker in workers]
    for n in range(10):
        execution = await docket.add(say)(str(n))
        assert await execution.get_result(timeout=WAIT_LIMIT) == str(n)
    for task in working:
        task.cancel()
        await ends(task)


class Unpicklable:
    def __init__(self) -> None:
        self.lock = threading.Lock()


class UnpicklableError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class OneWayError(Exception):
    """It can be stored, and not be read again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Speechless:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __reduce__(self) -> Any:
        return Speechless, ()


async def raise_it(error: str) -> None:
    if error == "unpicklable":
        raise UnpicklableError("the words of it")
    if error == "one-way":
        raise OneWayError("the words ", "of it")
    if error == "speechless":
        raise SpeechlessError("the words of it")
    if error == "exit":
        raise SystemExit("the words of it")
    if error == "interrupt":
        raise KeyboardInterrupt("the words of it")
    raise RuntimeError("the words of it" + "!" * 1_000_000)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("unpicklable", TaskFailed),
        ("one-way", TaskFailed),
        ("speechless", SpeechlessError),
        ("exit", TaskFailed),
        ("interrupt", TaskFailed),
        ("huge", TaskFailed),
    ],
)
async def test_an_exception_that_cannot_be_stored_is_shown_instead(
    harness: Harness, error: str, expected: type[BaseException]
) -> None:
    docket = await harness.docket(max_payload=100_000)
    failing = await docket.add(raise_it)(error)
    fine = await docket.add(say)("fine")
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    assert await fine.get_result() == "fine"
    with pytest.raises(expected) as raised:
        await failing.get_result()
    if expected is TaskFailed:
        assert "the words of it" in str(raised.value)
    await failing.sync()
    assert failing.state is ExecutionState.FAILED
    assert failing.error is not None
    assert len(failing.error) < 5_000, "error texts are cut"


async def test_a_result_that_cannot_be_stored_fails_the_task_and_says_why(harness: Harness) -> None:
    docket = await harness.docket(max_payload=100_000)

    async def unpicklable() -> Any:
        return Unpicklable()

    async def too_large() -> bytes:
        return b"x" * 200_000

    first, second = await docket.add(unpicklable)(), await docket.add(too_large)()
    fine = await docket.add(say)("fine")
    await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    with pytest.raises(Unserializable, match="Unpicklable"):
        await first.get_result()
    with pytest.raises(PayloadTooLarge, match="200,"):
        await second.get_result()
    assert await fine.get_result() == "fine"


async def test_arguments_that_cannot_be_stored_are_refused_at_the_caller(harness: Harness) -> None:
    docket = await harness.docket(max_payload=100_000)
    with pytest.raises(Unserializable):
        await docket.add(say)(Unpicklable())  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLarge):
        await docket.add(say)("x" * 200_000)
    assert (await docket.snapshot()).total_tasks == 0, "nothing was stored"


async def test_an_argument_that_cannot_be_shown_does_not_keep_its_task_from_running(harness: Harness) -> None:
    docket = await harness.docket()

    async def shy(what: Annotated[Any, Logged()]) -> str:
        return type(what).__name__

    execution = await docket.add(shy)(Speechless())
    with_log = logging.getLogger("docket.worker")
    before = with_log.level
    with_log.setLevel(logging.INFO)
    try:
        await ends(asyncio.create_task((await harness.worker(docket)).run_until_finished()))
    finally:
        with_log.setLevel(before)
    assert await execution.get_result() == "Speechless"


async def test_a_task_for_the_end_of_time_harms_nobody(harness: Harness) -> None:
    docket = await harness.docket()
    await docket.add(say, datetime.max.replace(tzinfo=UTC), key="never")("never")
    now = await docket.add(say)("now")
    working = asyncio.create_task((await harness.worker(docket)).run_forever())
    assert await now.get_result(timeout=WAIT_LIMIT) == "now"
    assert [e.key for e in (await docket.snapshot()).future] == ["never"]
    execution = await docket.get_execution("never")
    assert execution is not None
    assert execution.when.year == 9999
    working.cancel()
    await ends(working)


async def test_a_run_that_was_replaced_leaves_no_trace(harness: Harness) -> None:
    """Row A12: waiting tasks that are cancelled or replaced
    while they are delivered leave no pending record."""
    docket = await harness.docket()
    ran: list[str] = []

    async def note(word: str, execution: Execution = CurrentExecution()) -> None:
        ran.append(word)

    worker = await harness.worker(docket, concurrency=5)
    working = asyncio.create_task(worker.run_forever())
    for i in range(100):
        key = f"task-{i}"
        await docket.add(note, key=key)("original")
        if i % 2:
            await docket.replace(note, datetime.now(UTC), key)("replacement")
        else:
            await docket.cancel(key)
    await eventually(lambda: finished(docket), "all is done")
    assert ran.count("replacement") == 50
    async with docket.redis() as redis:
        for stream in (docket.stream_key, docket.key("front")):
            assert await redis.xlen(stream) == 0
            assert (await redis.xpending(stream, "docket-workers"))["pending"] == 0
        assert await redis.hlen(docket.key("running")) == 0
    working.cancel()
    await ends(working)


async def finished(docket: Docket) -> bool:
    return (await docket.snapshot()).total_tasks == 0
