"""The history of finished runs, as users read it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, EndingKind, FinishedRun, KeepFailures, Perpetual, Retry, Timeout, sync
from tests.running import run_everything, running, worker_for
from tests.waiting import eventually


def endings(runs: list[FinishedRun]) -> list[tuple[str, str, int, str | None]]:
    return sorted((run.function, run.ending.value, run.attempt, run.error) for run in runs)


async def test_every_failure_and_samples_of_the_others(docket: Docket) -> None:
    async def plain() -> None: ...

    async def twice(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError("no")

    async def too_long(timeout: Timeout = Timeout(timedelta(milliseconds=20))) -> None:
        await asyncio.sleep(60)

    async def chain(step: int, perpetual: Perpetual = Perpetual()) -> None:
        if step == 1:
            perpetual.cancel()
        else:
            perpetual.perpetuate(step + 1)
            raise KeyError("a step")

    for function in (plain, twice, too_long):
        await docket.add(function)()
    await docket.add(chain)(0)
    await run_everything(docket)
    found = await docket.history()
    assert [row for row in endings(found) if row[0] != "too_long"] == [
        ("chain", "failed", 1, "KeyError: 'a step'"),
        ("chain", "succeeded", 1, None),
        ("plain", "succeeded", 1, None),
        ("twice", "failed", 2, "ValueError: no"),
        ("twice", "retried", 1, "ValueError: no"),
    ]
    (slow,) = await docket.history(too_long)
    assert slow.ending is EndingKind.TIMED_OUT
    assert slow.run_time is not None
    assert slow.run_time >= timedelta(milliseconds=20)
    assert slow.waiting_time is not None
    assert slow.waiting_time >= timedelta(0)
    assert slow.worker is not None
    stats = await docket.stats()
    assert stats.total.failures == len(await docket.history(endings=("failed", "timed_out", "retried")))


async def test_filters(docket: Docket) -> None:
    async def plain() -> None: ...

    async def failing() -> None:
        raise ValueError("no")

    begin = docket.now()
    for number in range(3):
        await docket.add(failing, key=f"bad {number}")()
        await docket.add(plain, key=f"good {number}")()
        await run_everything(docket)
    failures = await docket.history(failing)
    assert [run.key for run in failures] == ["bad 2", "bad 1", "bad 0"]
    assert await docket.history("failing", endings=EndingKind.FAILED, since=begin) == failures
    assert await docket.history("failing", since=timedelta(days=1), limit=2) == failures[:2]
    assert await docket.history("failing", before=failures[0].id) == failures[1:]
    assert await docket.history(key="bad 1") == failures[1:2]
    assert await docket.history(until=begin - timedelta(seconds=1)) == []
    assert await docket.history(since=timedelta.max, endings={"failed"}) == failures
    assert {run.function for run in await docket.history(endings="succeeded")} == {"plain"}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"endings": "exploded"}, ValueError, "not an ending kind; these are: succeeded, failed"),
        ({"limit": 0}, ValueError, "1 at least"),
        ({"limit": "all"}, TypeError, "not a whole number"),
        ({"before": "1234"}, ValueError, "not the id of a finished run"),
        ({"since": 5}, TypeError, "it is a datetime or a timedelta"),
        ({"until": timedelta(1)}, TypeError, "it is a datetime"),
    ],
)
async def test_filters_that_make_no_sense_are_refused(
    docket: Docket, wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await docket.history(**wrong)
    now = docket.now()
    with pytest.raises(ValueError, match="is after until"):
        await docket.history(since=now, until=now - timedelta(seconds=1))


async def test_texts_follow_keep_failures(docket: Docket) -> None:
    async def private(keep: KeepFailures = KeepFailures(timedelta(0))) -> None:
        raise ValueError("customer 17")

    async def shown() -> None:
        raise ValueError("no")

    await docket.add(private)()
    await docket.add(shown)()
    await run_everything(docket)
    assert endings(await docket.history()) == [("private", "failed", 1, None), ("shown", "failed", 1, "ValueError: no")]


async def test_the_leader_trims_the_history(docket: Docket) -> None:
    async with docket.redis() as client:
        stream = docket.key("history-failures")
        await client.xadd(stream, {"r": b"old"}, id="1000-0")

        async def is_trimmed() -> bool:
            return await client.xlen(stream) == 0

        async with worker_for(docket) as worker, running(worker):
            await eventually(is_trimmed, "the leader has trimmed the history")


async def test_the_sync_docket_reads_the_same(docket: Docket) -> None:
    async def failing() -> None:
        raise ValueError("no")

    await docket.add(failing)()
    await run_everything(docket)

    def read() -> list[FinishedRun]:
        with sync.Docket(docket.name, docket.url) as blocking:
            return blocking.history(failing, endings=["failed"], limit=5)

    assert await asyncio.to_thread(read) == await docket.history(failing)
