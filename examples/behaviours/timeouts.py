"""A time limit for a run, which the run can extend."""

import asyncio
from datetime import timedelta

from docket import Docket, Timeout, Worker


async def slow(timeout: Timeout = Timeout(timedelta(milliseconds=50))) -> None:
    await asyncio.sleep(10)


async def asks_for_more(timeout: Timeout = Timeout(timedelta(milliseconds=200))) -> str:
    for _ in range(4):
        timeout.extend(timedelta(milliseconds=100))
        await asyncio.sleep(0.1)
    assert timeout.remaining() > timedelta(0)
    return "done"


async def main() -> None:
    async with Docket(name="timeouts", url="memory://timeouts") as docket:
        too_slow = await docket.add(slow)()
        patient = await docket.add(asks_for_more)()
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        assert await patient.get_result() == "done"
        try:
            await too_slow.get_result()
        except TimeoutError:
            print("the slow one was stopped")


asyncio.run(main())
