"""Counts the waiting tasks that match a query."""

from __future__ import annotations

from docket.ledger import Ledger
from docket.ledger.queries import Query, find_all

# A question to a person need not be more exact.
_MOST = 100_000


async def count_waiting(ledger: Ledger, query: Query) -> tuple[int, bool]:
    """How many waiting tasks match, and whether the number is exact: it stops at 100,000."""
    if query == Query():
        census = await ledger.count()
        return census.unfinished - census.running, True
    count = 0
    async for page in find_all(ledger, query):
        count += sum(row.run is None for row in page)
        if count >= _MOST:
            return count, False
    return count, True
