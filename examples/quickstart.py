"""The README's example: a task, and a worker that runs it."""

import asyncio

from docket import Docket, Worker


async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with Docket("greetings", url="memory://quickstart") as docket, Worker(docket) as worker:
        execution = await docket.add(greet)("Ada")
        await worker.run_until_finished()
        print(await execution.get_result())


asyncio.run(main())
