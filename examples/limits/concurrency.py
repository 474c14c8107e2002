"""A limit on the number of runs at a time: per customer, for the whole task, and both."""

import asyncio
from collections import Counter
from typing import Annotated

from docket import ConcurrencyLimit, Docket, Worker

running: Counter[str] = Counter()
most: Counter[str] = Counter()


async def work(name: str) -> None:
    running[name] += 1
    most[name] = max(most[name], running[name])
    await asyncio.sleep(0.02)
    running[name] -= 1


async def sync_customer(customer_id: Annotated[int, ConcurrencyLimit(1)]) -> None:
    """One at a time for each customer; customers do not wait for each other."""
    await work(f"customer {customer_id}")


async def render_report(number: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)) -> None:
    """Two at a time in the whole fleet."""
    await work("reports")


async def export_customer(
    customer_id: Annotated[int, ConcurrencyLimit(1, scope="exports")],
    limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=3),
) -> None:
    """One at a time for each customer, in its own scope, and three at a time in all."""
    await work("exports")


async def main() -> None:
    async with Docket(name="concurrency", url="memory://concurrency") as docket:
        for n in range(6):
            await docket.add(sync_customer)(customer_id=n % 2)
            await docket.add(render_report)(n)
            await docket.add(export_customer)(customer_id=n)
        async with Worker(docket, concurrency=20) as worker:
            await worker.run_until_finished()
    print("at a time:", dict(sorted(most.items())))
    assert most == {"customer 0": 1, "customer 1": 1, "reports": 2, "exports": 3}


asyncio.run(main())
