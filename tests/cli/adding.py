"""Adds a task that this process knows only by name: `python adding.py URL TASK KEY`."""

import asyncio
import sys

from docket import Docket


async def add(url: str, name: str, key: str) -> None:
    async def anything() -> None: ...

    async with Docket("docket", url) as docket:
        docket.register(anything, names=[name])
        await docket.add(name, key=key)()


if __name__ == "__main__":
    asyncio.run(add(*sys.argv[1:]))
