"""A limit on the number of runs that begin in a time: further runs wait or are dropped."""

import asyncio
import time
from datetime import timedelta
from typing import Annotated

from docket import Docket, ExecutionState, RateLimit, Worker

calls: list[float] = []
greeted: list[int] = []


async def call_api(number: int, limit: RateLimit = RateLimit(2, per=timedelta(milliseconds=300))) -> None:
    """Two calls within any 300 ms; the others wait for their turn."""
    calls.append(time.monotonic())


async def greet(user_id: Annotated[int, RateLimit(1, per=timedelta(minutes=1), drop=True)]) -> None:
    """At most one greeting a minute for each user; further greetings are dropped."""
    greeted.append(user_id)


async def main() -> None:
    async with Docket(name="rates", url="memory://rates") as docket:
        for number in range(6):
            await docket.add(call_api)(number)
        greetings = [await docket.add(greet)(user) for user in (1, 1, 2, 1)]
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        for greeting in greetings:
            await greeting.sync()
    print("calls after", [f"{at - calls[0]:.1f} s" for at in calls])
    assert len(calls) == 6
    assert calls[-1] - calls[0] > 0.5
    assert sorted(greeted) == [1, 2]
    assert sum(greeting.state is ExecutionState.CANCELLED for greeting in greetings) == 2


asyncio.run(main())
