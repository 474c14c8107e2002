"""A task whose behaviour fails after the run comes back soon, and more slowly each time."""

from __future__ import annotations

import asyncio
import sys

import pytest

from docket import Docket, Execution, Worker
from docket.dependencies import CompletionHandler
from docket.worker.claiming.deferred_tasks import MOST_REMEMBERED, RedeliveryDelays
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually


class FailsAtFirst(CompletionHandler["FailsAtFirst"]):
    failures = 0

    async def __aenter__(self) -> FailsAtFirst:
        return self

    async def on_complete(self, execution: Execution, outcome: object) -> bool:
        FailsAtFirst.failures += 1
        if FailsAtFirst.failures == 1:
            raise ConnectionError("not now")
        return False


async def work(handler: FailsAtFirst = FailsAtFirst()) -> str:
    return "done"


async def test_a_task_whose_completion_handler_fails_comes_back_within_seconds(docket: Docket) -> None:
    FailsAtFirst.failures = 0
    async with worker_at_work(docket):
        execution = await docket.add(work)()
        await eventually(lambda: FailsAtFirst.failures, "it has failed")
        assert await execution.get_result(timeout=WAIT_LIMIT) == "done"
    assert FailsAtFirst.failures == 2


def test_the_delay_doubles_up_to_the_redelivery_timeout_for_each_task_on_its_own() -> None:
    delays = RedeliveryDelays(5000)
    assert [delays.next_ms("a") for _ in range(5)] == [1000, 2000, 4000, 5000, 5000]
    assert delays.next_ms("b") == 1000
    assert RedeliveryDelays(200).next_ms("a") == 200


def test_the_delays_of_a_bounded_number_of_tasks_are_remembered() -> None:
    delays = RedeliveryDelays(60_000)
    delays.next_ms("first")
    for n in range(MOST_REMEMBERED):
        delays.next_ms(str(n))
    assert delays.next_ms("first") == 1000
    assert delays.next_ms(str(MOST_REMEMBERED - 1)) == 2000


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_tasks_run_once_each_where_asyncio_tasks_start_eagerly(docket: Docket, worker: Worker) -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    began: list[int] = []

    async def at_once(n: int) -> int:
        began.append(n)
        return n

    async def later(n: int) -> int:
        began.append(n)
        await asyncio.sleep(0.01)
        return n

    async def fails(n: int) -> None:
        began.append(n)
        raise ValueError(n)

    functions = (at_once, later, fails)
    executions = [await docket.add(functions[n % 3])(n) for n in range(30)]
    await worker.run_until_finished()
    assert sorted(began) == list(range(30))
    for n, execution in enumerate(executions):
        if n % 3 == 2:
            with pytest.raises(ValueError, match=str(n)):
                await execution.get_result()
        else:
            assert await execution.get_result() == n
        assert not execution.redelivered
