"""Cancels all unfinished tasks of one function."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .ledger import Ledger
from .queries import Source, TaskQuery

# Tasks move while they are cancelled: one that was running is retried, one that waited is claimed.
# The flag of a run that was asked to cancel also ends its retries, so few rounds are enough.
_ROUNDS = 5


@dataclass(slots=True)
class FunctionCancels:
    """How many waiting tasks were cancelled, and how many running ones were asked to cancel."""

    cancelled: int = 0
    asked: int = 0


async def cancel_function(ledger: Ledger, function: str) -> FunctionCancels:
    """Cancels the waiting tasks of a function, and asks the workers of the running ones. The chains
    of automatic tasks stay cancelled."""
    answer, asked = FunctionCancels(), set[str]()
    for _ in range(_ROUNDS):
        before = answer.cancelled, len(asked)
        answer.cancelled += await ledger.tasks.clear(function, ends_chains=True)
        async for page in ledger.queries.all(Source.RUNNING, TaskQuery(function=function)):
            found = [row.key for row in page if row.key not in asked]
            replies = await asyncio.gather(*(ledger.tasks.cancel(key, function) for key in found))
            answer.cancelled += replies.count(1)
            asked.update(key for key, reply in zip(found, replies, strict=True) if reply == 2)
        if before == (answer.cancelled, len(asked)):
            break
    answer.asked = len(asked)
    return answer
