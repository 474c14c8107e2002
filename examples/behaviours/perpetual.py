"""A task that runs again and again, and a task that decides about its next run."""

import asyncio
from datetime import timedelta

from docket import Docket, Perpetual, Worker

seen: list[object] = []


async def heartbeat(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=20), automatic=True)) -> None:
    """Automatic: workers schedule it themselves, once for the whole fleet."""
    seen.append("beat")


async def read_pages(page: int, perpetual: Perpetual = Perpetual()) -> None:
    seen.append(page)
    if page == 3:
        perpetual.cancel()  # the chain ends with this run
    else:
        perpetual.perpetuate(page + 1)  # the next run gets other arguments
        perpetual.after(timedelta(milliseconds=5))


async def main() -> None:
    async with Docket(name="perpetual", url="memory://perpetual") as docket:
        docket.register(heartbeat)
        await docket.add(read_pages, key="reader")(1)
        async with Worker(docket) as worker:
            await worker.run_at_most({"heartbeat": 3})  # for tests: a chain like this never ends by itself
    assert seen.count("beat") == 3
    assert [s for s in seen if s != "beat"] == [1, 2, 3]
    print("three beats, three pages")


asyncio.run(main())
