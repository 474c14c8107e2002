"""A retry of many dead letters whose process is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from docket import Docket, Worker
from docket.testing.servers import ServerProcess
from tests.waiting import within

LETTERS = 2_000
NAME = "letters"
# The batch of another process. It says how far it is after each step.
BATCH = """
import asyncio, sys
from docket import Docket

async def main():
    async with Docket({name!r}, {url!r}) as docket:
        tell = lambda done, all: print(done, flush=True)
        {call}

asyncio.run(main())
"""
WRONG = {"it": True}
started: Counter[str] = Counter()


async def fragile(key: str) -> None:
    started[key] += 1
    if WRONG["it"]:
        raise ValueError("not yet")


@pytest.fixture
async def docket(redis_server: ServerProcess) -> AsyncIterator[Docket]:
    async with Docket(NAME, f"redis://127.0.0.1:{redis_server.port}/9") as docket:
        await docket.server.client.flushdb()
        docket.register(fragile)
        started.clear()
        WRONG["it"] = True
        await docket.add_many([docket.call(fragile, key=f"k{n}")(f"k{n}") for n in range(LETTERS)])
        await run_all(docket)
        assert await docket.dead.count() == LETTERS
        started.clear()
        WRONG["it"] = False
        yield docket
        await docket.server.client.flushdb()


async def run_all(docket: Docket) -> None:
    async with Worker(docket, concurrency=100) as worker:
        await worker.run_until_finished()


async def kill_half_way(docket: Docket, call: str) -> int:
    """Kills a process that changes all letters. Returns the number that it was known to have
    changed."""
    code = BATCH.format(name=docket.name, url=docket.url, call=call)
    batch = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert batch.stdout is not None
    done = 0
    while done < LETTERS // 3:
        done = int(await within(batch.stdout.readline()))
    batch.send_signal(signal.SIGKILL)
    await within(batch.wait())
    return done


async def keys_of_letters(docket: Docket) -> list[str]:
    return [letter.key async for letter in docket.dead.find()]


async def test_a_retry_that_is_killed_half_way_is_finished_by_repeating_it(docket: Docket) -> None:
    mark = await docket.dead.mark()
    done = await kill_half_way(docket, f"await docket.dead.retry(everything=True, mark={mark}, progress=tell)")
    letters = await keys_of_letters(docket)
    snapshot = await docket.snapshot()
    tasks = [execution.key for execution in [*snapshot.future, *snapshot.running]]
    assert len(tasks) >= done
    assert sorted(letters + tasks) == sorted(f"k{n}" for n in range(LETTERS)), "each is a letter or a task"
    report = await docket.dead.retry(everything=True, mark=mark)
    assert report.retried == report.matched == len(letters)
    assert await docket.dead.count() == 0
    await run_all(docket)
    assert started == Counter(f"k{n}" for n in range(LETTERS)), "none is lost, none runs twice"
    assert await docket.dead.count() == 0


async def test_a_discard_that_is_killed_half_way_is_finished_by_repeating_it(docket: Docket) -> None:
    done = await kill_half_way(docket, "await docket.dead.discard(everything=True, progress=tell)")
    left = len(await keys_of_letters(docket))
    assert left <= LETTERS - done
    report = await docket.dead.discard(everything=True)
    assert report.discarded == left
    overview = await docket.dead.overview()
    assert (overview.letters, overview.size, overview.kinds) == (0, 0, ())


async def test_two_batches_at_once_retry_every_letter_once(docket: Docket) -> None:
    reports = await asyncio.gather(*(docket.dead.retry(everything=True) for _ in range(3)))
    assert sum(report.retried for report in reports) == LETTERS
    assert all(report.retried + report.gone == report.matched for report in reports)
    await run_all(docket)
    assert started == Counter(f"k{n}" for n in range(LETTERS))
