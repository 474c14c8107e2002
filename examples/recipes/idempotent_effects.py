"""Effects that happen once, although a task may run twice.

The key of the task is the same in every attempt and after a crash. Pass it to the other side, and
let the other side refuse the second time; or write it into your own database, in the transaction of
the effect.
"""

import asyncio
import sqlite3
from datetime import timedelta

from docket import Docket, Retry, TaskKey, Worker

charges: dict[str, int] = {}  # at the payment provider, by idempotency key


async def provider_charge(amount: int, idempotency_key: str) -> None:
    charges.setdefault(idempotency_key, amount)  # the provider ignores a key that it has seen


async def charge(
    order: int, amount: int, key: str = TaskKey(), retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=10))
) -> None:
    await provider_charge(amount, idempotency_key=key)
    if retry.attempt == 1:
        raise ConnectionError("the answer was lost")  # so we cannot know whether it was charged


database = sqlite3.connect(":memory:")
database.execute("create table stock (item text, amount int)")
database.execute("insert into stock values ('chair', 10)")
database.execute("create table done (key text primary key)")


async def reserve(
    item: str, amount: int, key: str = TaskKey(), retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=10))
) -> None:
    with database:  # one transaction: both rows, or none
        if database.execute("insert or ignore into done values (?)", (key,)).rowcount:
            database.execute("update stock set amount = amount - ? where item = ?", (amount, item))
    if retry.attempt == 1:
        raise ConnectionError("the worker lost its network after the commit")


async def main() -> None:
    async with Docket(name="effects", url="memory://effects") as docket:
        await docket.add(charge, key="charge-order-7")(7, 250)
        await docket.add(reserve, key="reserve-order-7")("chair", 3)
        async with Worker(docket) as worker:
            await worker.run_until_finished()
    (left,) = database.execute("select amount from stock").fetchone()
    print("charged:", charges, "chairs left:", left)
    assert charges == {"charge-order-7": 250}
    assert left == 7


asyncio.run(main())
