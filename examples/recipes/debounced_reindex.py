"""Debounce: a document that is saved many times in a row is indexed once, in its last version."""

import asyncio
from datetime import timedelta
from typing import Annotated

from docket import Debounce, Docket, Worker

indexed: list[tuple[int, int]] = []


async def reindex(
    document: Annotated[int, Debounce(timedelta(seconds=1), latest=True)],  # for each document
    version: int,
) -> None:
    indexed.append((document, version))


async def main() -> None:
    async with Docket(name="reindex", url="memory://reindex") as docket, Worker(docket) as worker:
        working = asyncio.create_task(worker.run_forever())
        # No keys: each save is a submission of its own.
        await docket.add_many([docket.call(reindex)(7, version) for version in range(1, 6)])
        last = await docket.add(reindex)(8, 1)
        await last.get_result(timeout=timedelta(seconds=60))
        while not any(document == 7 for document, _ in indexed):
            await asyncio.sleep(0.01)
        working.cancel()
        await working
    print("indexed", sorted(indexed))
    assert sorted(indexed) == [(7, 5), (8, 1)]


asyncio.run(main())
