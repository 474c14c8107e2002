"""`docket.why`: each reason why a task does not run, in the situation that makes it."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from docket import (
    ConcurrencyLimit,
    Debounce,
    Docket,
    ExecutionState,
    Perpetual,
    RateLimit,
    Reason,
    ReasonCode,
    Retry,
    Worker,
    sync,
)
from docket.codec.packing import pack_for_script
from docket.dependencies import AdmissionBlocked, Dependency, current_execution
from docket.ledger import requeue
from docket.model.histograms import BOUNDS
from docket.storage.keys import text_bytes
from docket.storage.schema.records import TASK_HEADER
from docket.storage.scripts import load
from docket.testing import Clock
from tests.ledger.ledger_client import LedgerClient, blocking_client
from tests.running import at_work, running, worker_at_work
from tests.waiting import eventually

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
START = datetime(2026, 1, 14, 10, 0, tzinfo=UTC)
LEASE_MS = 600_000


async def scan(number: int = 0) -> None: ...


class Gate:
    """A task that runs until the test lets it go."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()

    async def wait(self, name: str) -> None:
        self.begun.put_nowait(name)
        await self.go.wait()


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    yield gate
    gate.go.set()


async def hire(docket: Docket, *functions: str, name: str = "w") -> str:
    """A worker with a lease that claims nothing by itself."""
    worker = f"{name}~1"
    await docket.ledger.fleet.register(worker, LEASE_MS, functions or ("scan",))
    return worker


async def take(docket: Docket, worker: str, count: int = 100) -> list[Any]:
    deliveries = await docket.ledger.deliveries.take(worker, '"w"', count, None)
    assert deliveries is not None
    return deliveries


async def codes(docket: Docket, key: str) -> list[ReasonCode]:
    reason = await docket.why(key)
    return [reason.code, *(other.code for other in reason.also)]


async def reaches(docket: Docket, key: str, code: ReasonCode) -> Reason:
    async def reason() -> Reason | None:
        found = await docket.why(key)
        return found if found.code is code else None

    found = await eventually(reason, f"{key}: {code}")
    assert found is not None
    return found


# Never heard of, finished


async def test_a_key_that_was_never_added(docket: Docket) -> None:
    reason = await docket.why("nothing")
    assert reason.code is ReasonCode.NEVER_HEARD_OF
    assert reason.state is None
    assert reason.also == ()
    assert str(reason) == reason.sentence
    assert "'nothing'" in reason.sentence


async def test_a_key_that_is_not_text_is_one_clear_error(docket: Docket) -> None:
    with pytest.raises(TypeError, match="the key of a task is text"):
        await docket.why(5)  # type: ignore[arg-type]


async def test_tasks_that_have_ended(docket: Docket, worker: Worker) -> None:
    async def stumble() -> None:
        raise LookupError("no such order")

    await docket.add(scan, key="done")()
    await docket.add(stumble, key="failed")()
    await docket.add(scan, key="gone")()
    await docket.cancel("gone")
    await worker.run_until_finished()
    for key, state in (
        ("done", ExecutionState.COMPLETED),
        ("failed", ExecutionState.FAILED),
        ("gone", ExecutionState.CANCELLED),
    ):
        reason = await docket.why(key)
        code = ReasonCode.DEAD_LETTER if state is ExecutionState.FAILED else ReasonCode.FINISHED
        assert (reason.code, reason.state) == (code, state)
        assert reason.since is not None
    reason = await docket.why("failed")
    assert reason.error == "LookupError: no such order"
    assert reason.sentence.endswith(": LookupError: no such order.")
    assert reason.worker == worker.name
    assert reason.function == "stumble"


async def test_a_finished_record_that_cannot_be_read(docket: Docket) -> None:
    await docket.server.client.set(docket.keys.run("broken"), b"not a record", ex=600)
    assert await codes(docket, "broken") == [ReasonCode.UNREADABLE]


async def test_a_task_that_was_buried_is_a_dead_letter(docket: Docket, worker: Worker) -> None:
    await docket.add(scan, key="broken")()
    await docket.server.client.hset(docket.keys.tasks, "broken", b"not a record")
    await worker.run_until_finished()
    reason = await docket.why("broken")
    assert (reason.code, reason.state) == (ReasonCode.DEAD_LETTER, ExecutionState.FAILED)
    assert "dead letter" in reason.sentence
    # The key is used again. What it did last counts.
    await docket.add(scan, key="broken")()
    await worker.run_until_finished()
    again = await docket.why("broken")
    assert (again.code, again.state) == (ReasonCode.FINISHED, ExecutionState.COMPLETED)
    assert [other.code for other in again.also] == [ReasonCode.DEAD_LETTER]
    await docket.server.client.delete(docket.keys.run("broken"))
    assert await codes(docket, "broken") == [ReasonCode.DEAD_LETTER]


@pytest.mark.one_server
async def test_an_automatic_task_that_was_buried(docket: Docket, ledger_client: LedgerClient) -> None:
    await docket.server.client.sadd(docket.keys.key("automatic"), "nightly")
    await ledger_client.add("nightly", function="nightly")
    for _ in range(3):
        worker = await ledger_client.hire("nightly")
        assert [run.key for run in await ledger_client.take(worker)] == ["nightly"]
        ledger_client.bury(worker)
    reason = await docket.why("nightly")
    assert (reason.code, reason.state) == (ReasonCode.BURIED, ExecutionState.FAILED)
    assert [other.code for other in reason.also] == [ReasonCode.DEAD_LETTER]
    assert reason.also[0].error is not None


async def test_a_task_that_pydocket_left(docket: Docket) -> None:
    await docket.server.client.zadd(docket.keys.key("queue"), {"old": 1})
    assert await codes(docket, "old") == [ReasonCode.LEFT_BY_PYDOCKET]
    # Another program may keep anything under that name.
    await docket.server.client.delete(docket.keys.key("queue"))
    await docket.server.client.set(docket.keys.key("queue"), "text")
    assert await codes(docket, "old") == [ReasonCode.NEVER_HEARD_OF]


async def test_how_long_records_are_kept_is_what_the_processes_have_declared(docket: Docket) -> None:
    assert "are kept" not in (await docket.why("nothing")).sentence
    async with Docket(docket.name, docket.url, execution_ttl=2 * HOUR) as producer:
        await producer.add(scan, key="scan")()

        async def says_so() -> bool:
            return "are kept for 2h" in (await docket.why("nothing")).sentence

        await eventually(says_so, "the producer has declared its settings")


async def test_an_automatic_task_whose_chain_was_cancelled(docket: Docket, worker: Worker) -> None:
    async def nightly(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None: ...

    docket.register(nightly)
    async with running(worker):
        await reaches(docket, "nightly", ReasonCode.NOT_DUE)
        await docket.cancel("nightly")
        assert await codes(docket, "nightly") == [ReasonCode.FINISHED, ReasonCode.CHAIN_CANCELLED]
        await docket.server.client.delete(docket.keys.run("nightly"))
        assert await codes(docket, "nightly") == [ReasonCode.CHAIN_CANCELLED]


# Not due yet


async def test_a_task_that_is_not_due(docket: Docket) -> None:
    await hire(docket)
    due = docket.now() + HOUR
    await docket.add(scan, when=due, key="later")()
    reason = await docket.why("later")
    assert reason.code is ReasonCode.NOT_DUE
    assert reason.state is ExecutionState.SCHEDULED
    assert reason.also == ()
    assert reason.wait is not None
    assert abs(reason.taken + reason.wait - due) <= timedelta(milliseconds=1)
    assert reason.due is not None
    assert abs(reason.due - due) <= timedelta(milliseconds=1)
    assert "not due yet" in reason.sentence


async def test_what_else_keeps_a_task_from_running_is_said_too(docket: Docket) -> None:
    await docket.add(scan, when=docket.now() + HOUR, key="later")()
    assert await codes(docket, "later") == [ReasonCode.NOT_DUE, ReasonCode.NO_WORKER]
    await hire(docket, "other")
    assert await codes(docket, "later") == [ReasonCode.NOT_DUE, ReasonCode.FUNCTION_UNKNOWN]


async def test_a_retry_that_is_pending(docket: Docket, worker: Worker) -> None:
    async def flaky(retry: Retry = Retry(attempts=3, delay=HOUR)) -> None:
        raise ValueError("not today")

    await docket.add(flaky, key="flaky")()
    async with running(worker):
        reason = await reaches(docket, "flaky", ReasonCode.RETRY_PENDING)
    assert reason.attempt == 2
    assert reason.wait is not None
    assert reason.wait > timedelta(minutes=50)
    assert "Attempt 1 failed (ValueError: not today)" in reason.sentence
    assert reason.error == "ValueError: not today"


async def test_a_task_that_is_due_and_not_yet_staged(docket: Docket) -> None:
    leader = await hire(docket)
    for key in ("first", "second"):
        await docket.add(scan, when=docket.now() + HOUR, key=key)()
    schedule = text_bytes(docket.keys.schedule)
    await docket.server.client.zadd(schedule, {"first": 1, "second": 2})
    reason = await docket.why("second")
    assert (reason.code, reason.before, reason.worker) == (ReasonCode.STAGING, 1, "w")
    assert "1 due task is before it" in reason.sentence
    await hire(docket, name="other")
    await docket.ledger.fleet.resign(leader)
    await docket.server.client.zrem(schedule, "second")
    assert await codes(docket, "second") == [ReasonCode.UNREACHABLE]


# Ready


async def test_no_worker_is_alive(docket: Docket) -> None:
    await docket.add(scan, key="ready")()
    assert await codes(docket, "ready") == [ReasonCode.NO_WORKER, ReasonCode.READY]
    worker = await hire(docket, name="host#1")
    assert await codes(docket, "ready") == [ReasonCode.READY]
    await docket.ledger.fleet.leave(worker)
    reason = await docket.why("ready")
    assert (reason.code, reason.worker) == (ReasonCode.NO_WORKER, "host#1")
    assert "'host#1'" in reason.sentence


async def test_a_worker_whose_lease_has_ended_is_not_alive(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="ready")()
    await docket.server.client.zadd(docket.keys.leases, {worker: 1})
    assert (await codes(docket, "ready"))[0] is ReasonCode.NO_WORKER


async def test_leases_that_ended_while_nobody_could_renew(docket: Docket) -> None:
    worker, leases = await hire(docket), docket.keys.leases
    await docket.add(scan, key="ready")()
    await docket.server.client.zadd(leases, {worker: 1})
    reason = await docket.why("ready")
    assert reason.code is ReasonCode.NO_WORKER
    assert reason.sentence.startswith("The only worker has not renewed its lease in time")
    # In a grace nobody counts as dead.
    seconds, _ = await docket.server.client.time()
    await docket.server.client.zadd(leases, {"\1grace": seconds * 1000 + 9_000 - 10**15})
    assert await codes(docket, "ready") == [ReasonCode.READY]


async def test_workers_that_take_no_other_task(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="ready")()
    await docket.server.client.hset(docket.keys.key("alone"), worker, "poison")
    reason = await docket.why("ready")
    assert [other.code for other in reason.also] == [ReasonCode.WORKERS_RESERVED]
    assert "'poison'" in reason.also[0].sentence


async def test_all_workers_are_stopping(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="ready")()
    await docket.server.client.sadd(docket.keys.key("stopping"), worker)
    reason = await docket.why("ready")
    assert (reason.code, reason.workers) == (ReasonCode.NO_WORKER, 0)
    assert "stopping" in reason.sentence


async def test_how_many_tasks_are_before_it(docket: Docket) -> None:
    await hire(docket)
    await docket.add_many(docket.call(scan, key=f"task-{n}")(n) for n in range(1_102))
    for number, before, is_exact in ((0, 0, True), (1, 1, True), (412, 412, True), (1_000, 1_000, True)):
        reason = await docket.why(f"task-{number}")
        assert (reason.code, reason.before, reason.before_is_exact) == (ReasonCode.READY, before, is_exact)
    assert "412 tasks are before it" in (await docket.why("task-412")).sentence
    assert "it is the next one" in (await docket.why("task-0")).sentence
    for number in (1_001, 1_101):
        reason = await docket.why(f"task-{number}")
        assert (reason.before, reason.before_is_exact) == (1_000, False)
        assert "more than 1,000 tasks are before it" in reason.sentence


async def test_tasks_that_run_have_ended_or_were_cancelled_are_not_before_it(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add_many(docket.call(scan, key=f"task-{n}")(n) for n in range(10))
    await take(docket, worker, 4)
    await docket.cancel("task-5")
    assert (await docket.why("task-9")).before == 4
    # An entry whose task is gone without it, as after a repair.
    await docket.server.client.hdel(docket.keys.tasks, "task-6")
    assert (await docket.why("task-9")).before == 3


async def test_tasks_that_were_put_back_are_before_it(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="first")()
    await docket.add(scan, key="second")()
    (run,) = await take(docket, worker, 1)
    await docket.ledger.tasks.settle([requeue(run.key, run.epoch)])
    assert (await docket.why("first")).before == 0
    assert (await docket.why("second")).before == 1


async def test_a_stream_without_a_group_delivers_everything(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add_many(docket.call(scan, key=f"task-{n}")(n) for n in range(5))
    await take(docket, worker, 2)
    await docket.server.client.xgroup_destroy(docket.keys.stream, "docket-workers")
    # Those that run are not before it.
    assert (await docket.why("task-4")).before == 2


async def test_a_task_that_a_worker_has_received_and_not_claimed(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="received")()
    client, stream = docket.server.client, docket.keys.stream
    assert await client.xreadgroup("docket-workers", worker, {stream: ">"})
    reason = await docket.why("received")
    assert (reason.code, reason.worker) == (ReasonCode.DELIVERED, "w")
    await hire(docket, name="other")
    await client.zrem(docket.keys.leases, worker)
    reason = await docket.why("received")
    assert reason.code is ReasonCode.DELIVERED
    assert "another worker will take the task over" in reason.sentence
    entry = await entry_of(docket, "received")
    await client.xack(stream, "docket-workers", entry)
    await client.xdel(stream, entry)
    assert await codes(docket, "received") == [ReasonCode.UNREACHABLE]


async def entry_of(docket: Docket, key: str) -> str:
    status = await docket.ledger.tasks.get(key)
    assert status.task is not None
    assert status.task.entry is not None
    return status.task.entry


# Functions that no worker knows


async def test_no_live_worker_knows_the_function(docket: Docket) -> None:
    async with Docket(docket.name, docket.url) as ignorant, worker_at_work(ignorant):
        await docket.add(scan, key="scan")()

        async def waits() -> Reason | None:
            found = await docket.why("scan")
            return found if found.code is ReasonCode.FUNCTION_UNKNOWN and found.since else None

        reason = await eventually(waits, "the worker has met the task")
        assert reason is not None
        assert (reason.code, reason.workers, reason.workers_that_know) == (ReasonCode.FUNCTION_UNKNOWN, 1, 0)
        assert "'scan'" in reason.sentence
        assert reason.also == ()
        await hire(docket, "scan", name="busy")
        reason = await docket.why("scan")
        assert (reason.code, reason.before) == (ReasonCode.FUNCTION_BUSY, 0)
    assert (await docket.why("scan")).code is ReasonCode.FUNCTION_BUSY
    await docket.ledger.fleet.leave("busy~1")
    assert (await docket.why("scan")).code is ReasonCode.NO_WORKER


async def test_a_ready_task_whose_function_nobody_knows(docket: Docket) -> None:
    await hire(docket, "other")
    await docket.add(scan, key="scan")()
    assert await codes(docket, "scan") == [ReasonCode.FUNCTION_UNKNOWN, ReasonCode.READY]


# Limits


async def test_a_limit_that_is_full(docket: Docket, gate: Gate) -> None:
    async def charge(customer: Annotated[str, ConcurrencyLimit(max_concurrent=1)], name: str) -> None:
        await gate.wait(name)

    docket.register(charge)
    async with worker_at_work(docket, concurrency=10) as worker:
        for name in ("a", "b", "c"):
            await docket.add(charge, key=name)("acme", name)
        await gate.begun.get()
        second = await reaches(docket, "b", ReasonCode.LIMIT_FULL)
        third = await reaches(docket, "c", ReasonCode.LIMIT_FULL)
        assert second.limit is not None
        assert (second.limit.parameter, second.limit.function) == ("customer", None)
        assert (second.limit.most, second.limit.in_use, second.limit.waiters) == (1, 1, 2)
        (holder,) = second.limit.holders
        assert (holder.key, holder.worker) == ("a", worker.name)
        assert holder.since is not None
        assert abs(holder.since - second.taken) < HOUR
        assert (second.before, third.before) == (0, 1)
        assert second.also == ()
        assert "held by 'a'" in second.sentence
        assert "'customer'" in second.sentence
        assert "1 task waits before it" in third.sentence
        assert "acme" not in json.dumps(second.as_json())
        gate.go.set()


async def test_a_forecast_from_the_run_times_of_the_function(docket: Docket, gate: Gate) -> None:
    """The holder runs for a moment only, the usual run takes 10 to 16 s, and one task is before."""

    async def charge(name: str, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await gate.wait(name)

    docket.register(charge)
    async with worker_at_work(docket, concurrency=10), docket.redis() as client:
        for name in ("a", "b", "c"):
            await docket.add(charge, key=name)(name)
        await gate.begun.get()
        unknown = await reaches(docket, "c", ReasonCode.LIMIT_FULL)
        assert unknown.wait is None
        assert "about" not in unknown.sentence
        row = pack_for_script({128 + bisect_right(BOUNDS, 12): 5})
        minute = int(docket.now().timestamp() // 60)
        await client.hset(docket.key(f"stats-minute:={minute}"), "fcharge", row)
        known = await docket.why("c")
        assert known.wait is not None
        assert timedelta(seconds=5) < known.wait < timedelta(seconds=32)
        assert "1 task waits before it. By the usual run times its turn comes in about " in known.sentence
        await client.delete(docket.key(f"stats-minute:={minute}"))
        await client.set(docket.key(f"stats-minute:={minute}"), "somebody else's")
        assert (await docket.why("c")).wait is None
        await client.delete(docket.key(f"stats-minute:={minute}"))
        await client.hset(docket.key(f"stats-hour:={minute // 60}"), "fcharge", row)
        assert (await docket.why("c")).wait is not None
        gate.go.set()


async def test_a_limit_of_a_whole_task_with_several_slots(docket: Docket, gate: Gate) -> None:
    async def charge(name: str, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)) -> None:
        await gate.wait(name)

    docket.register(charge)
    async with worker_at_work(docket, concurrency=10):
        for name in ("a", "b", "c"):
            await docket.add(charge, key=name)(name)
        await gate.begun.get()
        await gate.begun.get()
        reason = await reaches(docket, "c", ReasonCode.LIMIT_FULL)
        assert reason.limit is not None
        assert (reason.limit.function, reason.limit.parameter) == ("charge", None)
        assert {holder.key for holder in reason.limit.holders} == {"a", "b"}
        assert "2 slots are held by" in reason.sentence
        gate.go.set()


async def test_a_delay_of_a_kind_that_only_a_newer_release_knows(docket: Docket) -> None:
    due = docket.now() + HOUR
    await docket.add(scan, due, key="scan")()
    status = await docket.ledger.tasks.get("scan")
    assert status.task is not None
    async with docket.redis() as client:
        await client.set(docket.key("delay:=scan"), f"lottery {status.task.due_ms:.0f} 1 5000 prize", px=60_000)
    assert (await docket.why("scan")).code is ReasonCode.NOT_DUE


async def test_a_rate_limit_delays_the_task(docket: Docket) -> None:
    async def mail(number: int, rate: RateLimit = RateLimit(2, per=MINUTE)) -> None: ...

    with Clock(docket, at=START):
        for number in range(3):
            await docket.add(mail, key=f"mail-{number}")(number)
        async with worker_at_work(docket):
            reason = await reaches(docket, "mail-2", ReasonCode.RATE_LIMITED)
        assert reason.wait == MINUTE
        assert reason.limit is not None
        assert (reason.limit.function, reason.limit.most, reason.limit.per) == ("mail", 2, MINUTE)
        assert "2 runs in 60s" in reason.sentence
        # The note counts only for this delay.
        await docket.replace(mail, START + HOUR, "mail-2")(2)
        assert (await docket.why("mail-2")).code is ReasonCode.NOT_DUE
    ttl = await docket.server.client.pttl(docket.keys.named("delay", "mail-2"))
    assert 0 < ttl <= 120_000


async def test_a_debounce_delays_the_task(docket: Docket) -> None:
    async def index(document: Annotated[int, Debounce(5 * SECOND)]) -> None: ...

    with Clock(docket, at=START):
        await docket.add(index, key="index:1")(1)
        async with worker_at_work(docket):
            reason = await reaches(docket, "index:1", ReasonCode.DEBOUNCED)
    assert reason.wait == 5 * SECOND
    assert reason.limit is not None
    assert (reason.limit.parameter, reason.limit.per) == ("document", 5 * SECOND)


async def test_a_dependency_that_did_not_admit_the_run(docket: Docket) -> None:
    class Closed(Dependency[None]):
        async def __aenter__(self) -> None:
            raise AdmissionBlocked(current_execution.get(), "the shop is closed", retry_delay=HOUR)

    async def sell(closed: None = Closed()) -> None: ...  # type: ignore[assignment]

    await docket.add(sell, key="sell")()
    async with worker_at_work(docket):
        reason = await reaches(docket, "sell", ReasonCode.NOT_ADMITTED)
    assert reason.wait is not None
    assert reason.wait > 50 * MINUTE


@pytest.mark.parametrize("delay_ms", [60_000, 60_000.4, 60_000.6])  # workers add a random part
async def test_a_task_that_a_worker_gave_back(docket: Docket, delay_ms: float) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="scan")()
    (run,) = await take(docket, worker)
    await docket.ledger.tasks.settle([requeue(run.key, run.epoch, delay_ms=delay_ms)])
    reason = await docket.why("scan")
    assert (reason.code, reason.attempt) == (ReasonCode.GIVEN_BACK, 1)


async def test_a_docket_that_keeps_nothing_keeps_no_notes(name: str, url: str) -> None:
    async with Docket(name, url, execution_ttl=timedelta(0)) as docket:
        worker = await hire(docket)
        await docket.add(scan, key="scan")()
        (run,) = await take(docket, worker)
        await docket.ledger.tasks.settle([requeue(run.key, run.epoch, delay_ms=60_000)])
        assert (await docket.why("scan")).code is ReasonCode.NOT_DUE
        assert not await docket.server.client.exists(docket.keys.named("delay", "scan"))


# Runs


async def test_a_running_task(docket: Docket, gate: Gate) -> None:
    async def work() -> None:
        await gate.wait("work")

    await docket.add(work, key="work")()
    async with Worker(docket, name="host#7") as worker, at_work(worker):
        await gate.begun.get()
        reason = await docket.why("work")
        assert (reason.code, reason.worker, reason.attempt) == (ReasonCode.RUNNING, "host#7", 1)
        assert (reason.state, reason.function) == (ExecutionState.RUNNING, "work")
        assert reason.since is not None
        assert reason.also == ()
        gate.go.set()


async def test_a_run_whose_worker_is_silent(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="scan")()
    await take(docket, worker)
    await docket.server.client.zadd(docket.keys.leases, {worker: 1})
    assert await codes(docket, "scan") == [ReasonCode.RUNNING, ReasonCode.WORKER_SILENT]
    await docket.server.client.zrem(docket.keys.leases, worker)
    reason = await docket.why("scan")
    assert "has no lease" in reason.also[0].sentence


async def test_a_run_that_was_asked_to_cancel(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.add(scan, key="scan")()
    await take(docket, worker)
    await docket.cancel("scan")
    assert "a cancel was requested" in (await docket.why("scan")).sentence


async def test_a_manual_run_has_a_lease_of_its_own(docket: Docket) -> None:
    execution = await docket.add(scan, key="scan")()
    await execution.claim("somebody")
    reason = await docket.why("scan")
    assert (reason.code, reason.worker, reason.also) == (ReasonCode.RUNNING, "somebody", ())


# Suspects


@pytest.fixture
def ledger_client(docket: Docket) -> Any:
    client = blocking_client(docket.server)
    yield LedgerClient(docket.ledger, client)
    client.close()


@pytest.mark.one_server
async def test_a_suspect_waits_for_a_worker_of_its_own(docket: Docket, ledger_client: LedgerClient) -> None:
    await ledger_client.add("poison")
    for _ in range(2):
        worker = await ledger_client.hire()
        assert [run.key for run in await ledger_client.take(worker)] == ["poison"]
        ledger_client.bury(worker)
    assert (await docket.why("poison")).code is ReasonCode.NO_WORKER
    busy = await ledger_client.hire()
    reason = await docket.why("poison")
    assert (reason.code, reason.losses) == (ReasonCode.SUSPECT, 2)
    assert "a worker of its own" in reason.sentence
    assert await codes(docket, "poison") == [ReasonCode.SUSPECT]
    # The busy worker meets it, so it waits in the schedule.
    await ledger_client.add("other")
    ledger_client.client.xreadgroup("docket-workers", busy, {docket.keys.stream: ">"})
    assert await ledger_client.take(busy) == []
    reason = await docket.why("poison")
    assert reason.code is ReasonCode.SUSPECT
    # Then the worker reserves it.
    ledger_client.client.hset(docket.keys.key("suspects"), b"mpoison", "1")
    ledger_client.fall_due("poison")
    await docket.ledger.tasks.stage()
    assert await ledger_client.take(busy) == []
    reason = await docket.why("poison")
    assert (reason.code, reason.worker) == (ReasonCode.SUSPECT, "w")
    assert "reserved" in reason.sentence


# Strikes


async def test_a_struck_task(docket: Docket) -> None:
    await hire(docket)
    await docket.add(scan, key="scan")(7)
    await docket.strike("scan", "number", ">", 5)
    assert await codes(docket, "scan") == [ReasonCode.READY, ReasonCode.MAY_BE_STRUCK]
    await docket.strike("scan")
    reason = await docket.why("scan")
    assert (reason.code, reason.rule) == (ReasonCode.STRUCK, "scan(...)")
    await docket.strike(None, "customer", "==", "acme")
    assert "2 strikes compare" in (await docket.why("scan")).also[-1].sentence
    await docket.strike("other")
    await docket.restore("scan")
    assert (await docket.why("scan")).code is ReasonCode.READY


# Pauses


async def test_a_task_that_a_pause_holds(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.pause("scan")
    for number in range(3):
        await docket.add(scan, key=f"scan-{number}")(number)
    assert await codes(docket, "scan-2") == [ReasonCode.WILL_BE_HELD, ReasonCode.READY]
    assert await take(docket, worker) == []
    reason = await docket.why("scan-2")
    assert (reason.code, reason.before, reason.rule) == (ReasonCode.HELD, 2, "scan(...)")
    assert reason.state is ExecutionState.QUEUED
    assert reason.since is not None
    assert reason.also == ()
    assert "2 tasks are before it" in reason.sentence
    await docket.resume("scan")
    assert await codes(docket, "scan-2") == [ReasonCode.READY]


async def test_a_paused_docket_and_pauses_of_arguments(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.pause("*")
    await docket.add(scan, key="scan")(1)
    await docket.add(scan, docket.now() + HOUR, key="later")(1)
    assert await codes(docket, "later") == [ReasonCode.NOT_DUE, ReasonCode.WILL_BE_HELD]
    assert await take(docket, worker) == []
    reason = await docket.why("scan")
    assert (reason.code, reason.rule) == (ReasonCode.HELD, "*(...)")
    await docket.resume("*")
    await docket.pause("scan", "number", ">", 5)
    await docket.pause("*", "customer", "==", "acme")
    await docket.pause("other", "number", ">", 5)
    reason = await docket.why("scan")
    assert [reason.code, *(other.code for other in reason.also)] == [ReasonCode.READY, ReasonCode.MAY_BE_HELD]
    assert "2 pauses compare" in reason.also[0].sentence


async def test_a_held_task_whose_pause_is_gone(docket: Docket) -> None:
    worker = await hire(docket)
    await docket.pause("scan")
    await docket.add(scan, key="scan")()
    assert await take(docket, worker) == []
    await docket.server.client.delete(docket.keys.key("pauses"))
    assert await codes(docket, "scan") == [ReasonCode.UNREACHABLE]


# Records that this release does not read


async def change_record(docket: Docket, key: str, at: int, value: int) -> None:
    client, tasks = docket.server.client, docket.keys.tasks
    record = bytearray(await client.hget(tasks, key))
    record[at] = value
    await client.hset(tasks, key, bytes(record))


async def test_a_task_of_a_newer_release(docket: Docket) -> None:
    await hire(docket)
    for key in ("location", "version", "envelope"):
        await docket.add(scan, key=key)()
    await change_record(docket, "location", TASK_HEADER.at("location"), 99)
    await change_record(docket, "version", TASK_HEADER.at("version"), 2)
    # The trace context and its length are before the envelope. Another test of this process may
    # have configured a tracer.
    record = await docket.server.client.hget(docket.keys.tasks, "envelope")
    trace_at = TASK_HEADER.size + len("scan")
    trace_size = int.from_bytes(record[trace_at : trace_at + 2], "little")
    await change_record(docket, "envelope", trace_at + 2 + trace_size, 9)
    assert await codes(docket, "location") == [ReasonCode.NEWER_RELEASE]
    for key in ("version", "envelope"):
        assert await codes(docket, key) == [ReasonCode.NEWER_RELEASE, ReasonCode.READY]
    assert "version 9" in (await docket.why("envelope")).sentence


async def test_a_record_that_cannot_be_read(docket: Docket) -> None:
    await hire(docket)
    await docket.add(scan, key="broken")()
    await docket.server.client.hset(docket.keys.tasks, "broken", b"not a record")
    assert (await docket.why("broken")).code is ReasonCode.UNREADABLE
    await docket.add(scan, key="empty")()
    record = await docket.server.client.hget(docket.keys.tasks, "empty")
    await docket.server.client.hset(docket.keys.tasks, "empty", record[: TASK_HEADER.size + len("scan")])
    assert (await docket.why("empty")).code is ReasonCode.UNREADABLE


async def test_arguments_that_are_stored_apart(docket: Docket) -> None:
    async def large(data: bytes) -> None: ...

    await hire(docket, "large")
    await docket.add(large, key="large")(b"x" * 100_000)
    assert (await docket.why("large")).code is ReasonCode.READY
    task = (await docket.ledger.tasks.get("large")).task
    assert task is not None
    assert task.reference is not None
    await docket.server.client.delete(docket.keys.payload(task.reference.id))
    reason = await docket.why("large")
    assert reason.code is ReasonCode.UNREADABLE
    assert "arguments" in reason.sentence


# The answer


async def test_texts_of_users_control_no_terminal(docket: Docket, worker: Worker) -> None:
    async def stumble() -> None:
        raise LookupError("\x1b[31m" + "x" * 5_000)

    await docket.add(stumble, key="k")()
    await worker.run_until_finished()
    reason = await docket.why("k")
    assert reason.sentence.isprintable()
    assert len(reason.sentence) < 400
    assert reason.error is not None
    assert reason.error.count("x") > 3_000
    assert (await docket.why("\x1b[31m")).sentence.isprintable()


async def test_the_json_has_all_fields_always(docket: Docket) -> None:
    await docket.add(scan, when=docket.now() + HOUR, key="later")()
    for key in ("later", "nothing"):
        found = (await docket.why(key)).as_json()
        assert json.loads(json.dumps(found)) == found
        assert set(found) == {field.name for field in fields(Reason)}
    found = (await docket.why("later")).as_json()
    assert found["code"] == "not_due"
    assert found["state"] == "scheduled"
    assert found["also"][0]["code"] == "no_worker"


async def test_it_costs_one_request_and_the_script_writes_nothing(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    await docket.add(scan, key="scan")()
    asked: list[str] = []
    ask = type(docket.ledger).run_script

    def noted(ledger: Any, script: str, *args: Any, **options: Any) -> Any:
        asked.append(script)
        return ask(ledger, script, *args, **options)

    monkeypatch.setattr(type(docket.ledger), "run_script", noted)
    await docket.why("scan")
    assert asked == ["why"]


@pytest.mark.one_server
async def test_the_server_runs_the_script_as_read_only(docket: Docket, gate: Gate) -> None:
    async def charge(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await gate.wait("charge")

    docket.register(charge)
    client = docket.server.client
    info = await client.info("server")
    if info.get("redis_version", "").startswith("6."):
        pytest.skip("this server has no EVAL_RO")
    async with worker_at_work(docket):
        for key in ("a", "b"):
            await docket.add(charge, key=key)()
        await reaches(docket, "b", ReasonCode.LIMIT_FULL)
        await docket.add(scan, when=docket.now() + HOUR, key="later")()
        for key in ("a", "b", "later", "nothing"):
            packed = pack_for_script((text_bytes(key),))
            script, root = load("why").source, docket.keys.root
            answer = await client.execute_command("EVAL_RO", script, 1, root, b"channels", packed)
            assert (answer[1] is not None) == (key != "nothing")
        gate.go.set()


def test_every_code_is_in_the_design(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs" / "design" / "why.md").read_text()
    assert not [code for code in ReasonCode if f"`{code.value}`" not in page]


async def test_the_sync_docket_has_it_too(docket: Docket, name: str, url: str) -> None:
    await docket.add(scan, when=docket.now() + HOUR, key="later")()

    def ask() -> Reason:
        with sync.Docket(name, url) as other:
            return other.why("later")

    reason = await asyncio.to_thread(ask)
    assert reason.code is ReasonCode.NOT_DUE
