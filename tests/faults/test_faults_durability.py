"""`durability="replica"`: an `add` that returns is on a replica, and one that is not says so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Any

import pytest

from docket import Disposition, Docket, Execution, NotDurable, Perpetual
from docket.errors import ServerUnreachable
from docket.testing.servers import ReplicaGroup, ServerProcess
from tests.waiting import WAIT_LIMIT, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working

LONG, SHORT = timedelta(seconds=60), timedelta(milliseconds=50)


async def replicated(harness: Harness, **options: Any) -> tuple[ReplicaGroup, Docket, CountedTasks]:
    group = harness.group(ReplicaGroup("--appendonly", "yes", "--appendfsync", "always"))
    docket = await harness.docket(url=group.url, durability="replica", **{"durability_timeout": LONG, **options})
    return group, docket, CountedTasks(docket)


def has(server: ServerProcess, docket: Docket, key: str) -> bool:
    return server.run("HEXISTS", docket.key("tasks"), key) == 1


def waits(server: ServerProcess) -> int:
    """How many WAIT commands the server has had."""
    with server.client() as client:
        return client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0)


async def unconfirmed(adding: Any) -> NotDurable:
    with pytest.raises(NotDurable) as raised:
        await adding
    return raised.value


async def is_waiting(group: ReplicaGroup) -> None:
    """Returns when a client waits for the replica."""

    def waiting() -> bool:
        return b"cmd=wait" in group.primary.run("CLIENT", "LIST")

    await eventually(waiting, "an add waits for the replica")


async def test_a_replica_has_every_task_whose_add_has_returned(harness: Harness) -> None:
    group, docket, counted = await replicated(harness)
    one = await counted.add("one")
    before = waits(group.primary)
    many = await docket.add_many(docket.call(counted.short)() for _ in range(500))
    other = await docket.replace(counted.short, docket.now() + timedelta(hours=1), "other")()
    large = await docket.add(docket.tasks["trace"])("l" * 200_000)
    everything = [one, other, large, *many]
    assert {execution.disposition for execution in everything} == {Disposition.SCHEDULED}
    assert all(has(group.replicas[0], docket, execution.key) for execution in everything)
    # 500 calls are three batches.
    assert waits(group.primary) - before == 5


async def test_an_unconfirmed_task_can_be_replaced(harness: Harness) -> None:
    group, docket, counted = await replicated(harness, durability_timeout=SHORT)
    group.replicas[0].pause()
    error = await unconfirmed(docket.add(counted.short, docket.now() + timedelta(hours=1))())
    execution = error.execution
    assert execution is not None

    await unconfirmed(execution.schedule(replace=True))

    status = await docket.ledger.tasks.get(execution.key)
    assert status.task is not None
    assert status.task.generation == 2


async def test_an_unconfirmed_task_is_not_run_again_if_the_answer_to_its_repeat_is_lost(harness: Harness) -> None:
    group, docket, counted = await replicated(harness, durability_timeout=SHORT)
    group.replicas[0].pause()
    execution = (await unconfirmed(docket.add(counted.short)())).execution
    assert execution is not None
    send, failures = docket.ledger.tasks.enqueue_and_wait, [ServerUnreachable("the answer is lost")]
    failures[0].maybe_stored = True

    async def lose_one_answer(*args: Any) -> Any:
        result = await send(*args)
        if failures:
            raise failures.pop()
        return result

    docket.ledger.tasks.enqueue_and_wait = lose_one_answer  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ServerUnreachable):
        await execution.schedule()
    near = await harness.docket(url=group.url)
    near.register(counted.short)
    async with working(await harness.worker(near)):
        await execution.get_result(timeout=WAIT_LIMIT)
        with contextlib.suppress(NotDurable):
            await execution.schedule()

        assert (await near.ledger.queries.census()).unfinished == 0


async def test_the_default_never_waits_for_a_replica(harness: Harness) -> None:
    group = harness.group(ReplicaGroup())
    docket = await harness.docket(url=group.url)
    group.replicas[0].pause()
    await CountedTasks(docket).add("one")
    assert waits(group.primary) == 0


async def test_a_task_that_no_replica_confirms_is_stored_and_its_repeat_changes_nothing(harness: Harness) -> None:
    group, docket, counted = await replicated(harness, durability_timeout=SHORT)
    (replica,) = group.replicas
    replica.pause()
    mine = await unconfirmed(counted.add("mine"))
    generated = await unconfirmed(docket.add(counted.short)())
    assert (mine.key, mine.execution.key) == ("mine", "mine")
    assert mine.execution.disposition is Disposition.SCHEDULED
    assert "'mine'" in str(mine)
    assert "no replica has confirmed it within 50 ms" in str(mine)
    assert has(group.primary, docket, "mine")
    # A repeat that is not confirmed either says the same.
    assert (await unconfirmed(counted.add("mine"))).execution.disposition is Disposition.ALREADY_SCHEDULED
    replica.wake()
    await confirmed(counted.add, "mine")
    await confirmed(docket.schedule, generated.execution)
    assert has(replica, docket, "mine")
    assert has(replica, docket, generated.key)
    async with working(await harness.worker(docket)):
        await eventually(lambda: counted.finished["mine"] and counted.finished[generated.key], "both have run")
    assert (counted.starts["mine"], counted.starts[generated.key]) == (1, 1)


async def confirmed(repeat: Any, argument: Any) -> None:
    async def is_confirmed() -> bool:
        try:
            await repeat(argument)
        except NotDurable:
            return False
        return True

    await eventually(is_confirmed, "the replica has confirmed it")


async def test_the_repeat_of_a_generated_key_does_not_run_a_finished_task_again(harness: Harness) -> None:
    group, docket, counted = await replicated(harness, durability_timeout=SHORT)
    group.replicas[0].pause()
    error = await unconfirmed(docket.add(counted.short)())
    async with working(await harness.worker(docket)):
        await error.execution.get_result(timeout=WAIT_LIMIT)
        group.replicas[0].wake()
        await confirmed(docket.schedule, error.execution)
        await counted.works("another")
    assert counted.starts[error.key] == 1


async def test_each_call_of_add_many_has_its_outcome(harness: Harness) -> None:
    group, docket, counted = await replicated(harness, durability_timeout=SHORT)
    group.replicas[0].pause()
    executions = await docket.add_many(docket.call(counted.short, key=f"task {n}")() for n in range(3))
    assert {execution.disposition for execution in executions} == {Disposition.FAILED}
    errors = [execution.schedule_exception for execution in executions]
    assert [error.key for error in errors if isinstance(error, NotDurable)] == ["task 0", "task 1", "task 2"]
    assert all(has(group.primary, docket, execution.key) for execution in executions)


async def test_calls_of_a_worker_do_not_wait_for_a_replica(harness: Harness) -> None:
    group, docket, counted = await replicated(harness)
    async with working(await harness.worker(docket)):
        await counted.works("first")
        group.replicas[0].pause()
        adding = asyncio.create_task(counted.add("second"))
        await is_waiting(group)
        await eventually(lambda: counted.finished["second"], "it runs while its add waits")
        assert await docket.get_execution("second") is not None
        assert not adding.done()
        group.replicas[0].wake()
        await adding


@pytest.mark.parametrize("generated", [True, False], ids=["generated key", "own key"])
async def test_when_the_primary_goes_before_the_replica_has_confirmed(harness: Harness, generated: bool) -> None:
    group, docket, counted = await replicated(harness, add_patience=LONG)
    group.replicas[0].pause()
    adding: asyncio.Task[Execution] = asyncio.create_task(
        docket.add(counted.short, key=None if generated else "own key")()
    )
    await is_waiting(group)
    group.primary.kill()
    group.replicas[0].wake()
    if generated:
        # It is repeated until there is a primary whose replica confirms.
        await asyncio.to_thread(group.primary.start)
        key = (await adding).key
        assert has(group.replicas[0], docket, key)
    else:
        key = (await unconfirmed(adding)).key
        await asyncio.to_thread(group.primary.start)
    async with working(await harness.worker(docket)):
        await eventually(lambda: counted.finished[key], "it has run")
    assert counted.starts[key] == 1


async def test_without_a_replica_a_docket_warns_and_its_worker_works(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.server(tcp=True)
    with caplog.at_level(logging.WARNING, "docket.storage"):
        docket = await harness.docket(url=server.url, durability="replica", durability_timeout=SHORT)
    assert [record.getMessage() for record in caplog.records if "has no replica" in record.getMessage()]
    ticks = 0

    async def tick(perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        nonlocal ticks
        ticks += 1
        perpetual.cancel()

    docket.register(tick)
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        error = await unconfirmed(counted.add("task"))
        await error.execution.get_result(timeout=WAIT_LIMIT)
        await eventually(lambda: ticks == 1, "the automatic task runs")


async def test_a_docket_in_memory_needs_no_replica(harness: Harness) -> None:
    docket = await harness.docket(url=f"memory://{harness.name}", durability="replica")
    assert (await CountedTasks(docket).add("task")).disposition is Disposition.SCHEDULED


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match="durability='disk'.*'primary', 'replica'"):
        Docket(durability="disk")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="durability_timeout.* at least 1ms"):
        Docket(durability="replica", durability_timeout=timedelta(0))
