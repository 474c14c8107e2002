"""The first submission runs. Submissions within the window after it are dropped."""

import asyncio
from datetime import timedelta
from typing import Annotated

from docket import Cooldown, Docket, ExecutionCancelled, Worker

refreshed: list[str] = []


async def refresh(feed: Annotated[str, Cooldown(timedelta(minutes=5))]) -> None:
    """Refreshes a feed at most every five minutes, however many tasks are added."""
    refreshed.append(feed)


async def main() -> None:
    async with Docket(name="cooldowns", url="memory://cooldowns") as docket:
        first = await docket.add(refresh)("news")
        second = await docket.add(refresh)("weather")
        async with Worker(docket) as worker:
            await worker.run_until_finished()
            await first.get_result()
            await second.get_result()
            third = await docket.add(refresh)("news")
            await worker.run_until_finished()
        try:
            await third.get_result()
        except ExecutionCancelled as dropped:
            print(dropped)
    assert sorted(refreshed) == ["news", "weather"]


asyncio.run(main())
