"""Find and flood: an automatic task looks for rows that are due and adds one task for each.

The key of a row's task makes it unique, so a row that still waits from the last time is not added
twice, and a run of the finder that is repeated changes nothing.
"""

import asyncio
from datetime import timedelta

from docket import CurrentDocket, Docket, Perpetual, Worker

due = {1, 2, 3}  # rows in your database
sent: list[int] = []
looked = 0


async def find_due_invoices(
    docket: Docket = CurrentDocket(),
    every: Perpetual = Perpetual(timedelta(milliseconds=100), automatic=True),
) -> None:
    global looked
    looked += 1
    if looked == 5:
        every.cancel()  # this program ends; yours goes on
    await docket.add_many([docket.call(send_invoice, key=f"invoice-{row}")(row) for row in sorted(due)])


async def send_invoice(row: int) -> None:
    await asyncio.sleep(0.15)  # slower than the finder
    if row in due:  # look again: the row may have changed while the task waited
        due.remove(row)
        sent.append(row)


async def main() -> None:
    async with Docket(name="find-and-flood", url="memory://find-and-flood") as docket:
        docket.register(find_due_invoices)
        docket.register(send_invoice)
        async with Worker(docket) as worker:
            await worker.run_until_finished()
    print("looked", looked, "times, sent", sorted(sent))
    assert sorted(sent) == [1, 2, 3]


asyncio.run(main())
