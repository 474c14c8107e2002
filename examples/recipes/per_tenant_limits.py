"""Limits for each tenant: one large customer cannot take all workers from the others.

A task that waits for its tenant's limit occupies no worker, so the tasks of other tenants pass it.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Annotated

from docket import ConcurrencyLimit, Docket, RateLimit, Worker

running: Counter[str] = Counter()
most: Counter[str] = Counter()
left = {"large": 40, "small": 4}
small_is_done = asyncio.Event()


async def scan(
    tenant: Annotated[str, ConcurrencyLimit(2), RateLimit(100, per=timedelta(seconds=1))],
    page: int,
    everybody: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=8),  # and eight in all
) -> None:
    running[tenant] += 1
    most[tenant] = max(most[tenant], running[tenant])
    if tenant == "large":
        await small_is_done.wait()  # pages of the large tenant take long
    running[tenant] -= 1
    left[tenant] -= 1
    if not left["small"]:
        small_is_done.set()


async def main() -> None:
    async with Docket(name="tenants", url="memory://tenants") as docket:
        await docket.add_many([docket.call(scan)("large", page) for page in range(40)])
        await docket.add_many([docket.call(scan)("small", page) for page in range(4)])
        async with Worker(docket, concurrency=20) as worker:
            await worker.run_until_finished()
    print("at the same time:", dict(most))
    assert most["large"] == 2
    assert most["small"] <= 2
    assert left == {"large": 0, "small": 0}


asyncio.run(main())
