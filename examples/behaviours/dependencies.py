"""Dependencies of a task: opened for one run or once for
the worker, with access to the task's own arguments."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from docket import CurrentDocket, Depends, Docket, Shared, TaskArgument, TaskKey, Worker

events: list[str] = []


class Pool:
    """An object that is expensive to open."""

    def __init__(self) -> None:
        events.append("pool opened")

    def connection(self, customer: str) -> str:
        return f"connection for {customer}"


@asynccontextmanager
async def pool() -> AsyncGenerator[Pool]:
    yield Pool()
    events.append("pool closed")


@asynccontextmanager
async def connection(customer: str = TaskArgument(), shared: Pool = Shared(pool)) -> AsyncGenerator[str]:
    yield shared.connection(customer)
    events.append(f"closed {customer}")


async def bill(
    customer: str,
    db: str = Depends(connection),
    key: str = TaskKey(),
    docket: Docket = CurrentDocket(),
) -> str:
    assert key == f"bill-{customer}"
    assert docket.name == "dependencies"
    return db


async def main() -> None:
    async with Docket(name="dependencies", url="memory://dependencies") as docket:
        ada = await docket.add(bill, key="bill-ada")("ada")
        bob = await docket.add(bill, key="bill-bob")("bob", db="one of my own")  # a caller may pass the value
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        assert await ada.get_result() == "connection for ada"
        assert await bob.get_result() == "one of my own"
    assert events == ["pool opened", "closed ada", "pool closed"], events
    print(*events, sep="\n")


asyncio.run(main())
