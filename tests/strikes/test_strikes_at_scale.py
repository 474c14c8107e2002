"""Strikes in numbers: a thousand while thousands of tasks run, ten thousand in the past."""

import asyncio
import math
import time
from collections import defaultdict
from functools import partial

import pytest

from docket import Disposition, Docket, Execution, Worker
from tests.nodes import command_counts, reset_command_counts
from tests.running import at_work
from tests.waiting import eventually

CUSTOMERS = 2_000
STRUCK = 1_000
TASKS = 5_000


async def test_no_struck_task_starts_after_everybody_knows_the_strike(docket: Docket) -> None:
    starts: dict[int, list[float]] = defaultdict(list)
    known_at: dict[int, float] = {}
    restored_at: dict[int, float] = {}

    async def serve(customer: int) -> None:
        starts[customer].append(time.perf_counter())
        await asyncio.sleep(0.02)

    def call_of(customer: int) -> Execution:
        return Execution(docket, serve, (customer,), {}, "k", docket.now())

    async with (
        Docket(docket.name, docket.url) as second,
        Worker(docket, name="one", concurrency=20) as one,
        Worker(second, name="two", concurrency=20) as two,
    ):

        def everybody_knows(customer: int) -> bool:
            call = call_of(customer)
            return docket.strike_list.is_stricken(call) and second.strike_list.is_stricken(call)

        async def strike_and_restore(customers: range) -> None:
            for customer in customers:
                await docket.strike(serve, "customer", "==", customer)
                await eventually(partial(everybody_knows, customer), "everybody knows the strike")
                known_at[customer] = time.perf_counter()
            for customer in customers:
                if customer % 2:
                    restored_at[customer] = time.perf_counter()
                    await second.restore(serve, "customer", "==", customer)

        docket.register(serve)
        second.register(serve)
        async with at_work(one, two):
            executions, *_ = await asyncio.gather(
                docket.add_many([docket.call(serve)(i % CUSTOMERS) for i in range(TASKS)]),
                *(strike_and_restore(range(begin, begin + STRUCK // 4)) for begin in range(0, STRUCK, STRUCK // 4)),
            )
            await eventually(lambda: len(docket.strike_list.in_effect) == STRUCK // 2, "half of the strikes are left")
        async with Worker(docket) as last:
            await last.run_until_finished()

    late = {
        customer: [start for start in starts[customer] if known < start < restored_at.get(customer, math.inf)]
        for customer, known in known_at.items()
    }
    assert not any(late.values()), {customer: found for customer, found in late.items() if found}
    # Those who were never struck have all been served; of the others, some were too late.
    assert all(len(starts[customer]) >= TASKS // CUSTOMERS for customer in range(STRUCK, CUSTOMERS))
    assert executions is not None
    scheduled = [e for e in executions if e.disposition is Disposition.SCHEDULED]
    assert sum(map(len, starts.values())) < len(scheduled)


@pytest.mark.one_server
async def test_start_up_reads_what_is_in_effect_and_not_history(docket: Docket) -> None:
    async def come_and_go(numbers: range) -> None:
        for i in numbers:
            await docket.strike("send", "customer", "==", i)
            await docket.restore("send", "customer", "==", i)

    await asyncio.gather(*(come_and_go(range(begin, begin + 1_250)) for begin in range(0, 10_000, 1_250)))
    for i in range(10):
        await docket.strike("send", "customer", "==", i)

    async with docket.redis() as redis:
        # The ten, and the version.
        assert await redis.hlen(docket.strike_list.strike_key) == 11
    await reset_command_counts(docket)
    async with Docket(docket.name, docket.url) as late:
        assert len(late.strike_list.in_effect) == 10
    assert 1 <= (await command_counts(docket))["hscan"] <= 2


async def test_a_thousand_strikes_cost_a_task_next_to_nothing(docket: Docket) -> None:
    async def send(customer: int) -> None: ...

    for i in range(1_000):
        await docket.strike(send, "customer", "==", i)

    execution = await docket.add(send)(-1)
    # Time of this process, since the machine may be busy with others.
    begin = time.process_time()
    for _ in range(1_000):
        docket.strike_list.is_stricken(execution)
    assert time.process_time() - begin < 0.5
