"""The README's example: a task for now, a task for later, and a worker that runs both."""

import asyncio
from datetime import UTC, datetime, timedelta

from docket import Docket, Worker


async def greet(name: str, greeting: str = "Hello") -> str:
    print(f"{greeting}, {name}!")
    return f"{greeting}, {name}!"


async def main() -> None:
    async with Docket(name="greetings", url="memory://quickstart") as docket:  # or redis://localhost:6379/0
        now = await docket.add(greet)("Ada")
        await docket.add(greet, when=datetime.now(UTC) + timedelta(seconds=2))("Grace", greeting="Good evening")
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        print("The first task returned:", await now.get_result())


asyncio.run(main())
