"""One sync docket that many threads use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from docket.sync import Docket
from docket.testing.servers import ServerProcess
from tests.times import later
from tests.waiting import SECONDS, WAIT_LIMIT, eventually_blocking

from .tasks import double

THREADS = 16


@pytest.mark.usefixtures("worker")
def test_threads_add_and_wait_side_by_side(docket: Docket) -> None:
    def call(number: int) -> int:
        return docket.add(double)(number).get_result(timeout=WAIT_LIMIT)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(call, range(100))) == [2 * number for number in range(100)]


def test_threads_that_open_a_docket_at_once_share_one_session(docket: Docket) -> None:
    barrier = threading.Barrier(THREADS)

    def add(number: int) -> Any:
        barrier.wait(SECONDS)
        return docket.add(double, when=later())(number)

    with ThreadPoolExecutor(THREADS) as pool:
        dockets = {execution._execution.docket for execution in pool.map(add, range(THREADS))}
    assert len(dockets) == 1
    assert docket.snapshot().total_tasks == THREADS


def test_adds_of_several_threads_share_requests(server: ServerProcess, name: str) -> None:
    """While the server is held up, one caller has sent its task. All others gather for one
    request."""
    docket = Docket(name, server.url)
    for _ in range(2):
        docket.add(double, when=later())(0)
    before = scripts_run(server)
    server.pause()
    requests = docket._producer.session()._caller_adds._requests
    with ThreadPoolExecutor(THREADS) as pool:
        adding = [pool.submit(docket.add(double, when=later()), number) for number in range(THREADS)]
        eventually_blocking(
            lambda: len(requests._queue) == THREADS - 1, "all others wait", seen=requests._queue.__len__
        )
        server.wake()
        for done in adding:
            done.result(SECONDS)
    assert scripts_run(server) - before == 2
    assert docket.snapshot().total_tasks == THREADS + 2
    docket.close()


def test_a_thread_that_fails_does_not_disturb_the_others(docket: Docket) -> None:
    def add(number: int) -> str:
        function: Callable[..., Any] = docket.add(double, when=later())
        if number % 2:
            with pytest.raises(TypeError):
                function(threading.Lock())
            return "refused"
        return function(number).disposition.value

    with ThreadPoolExecutor(THREADS) as pool:
        assert set(pool.map(add, range(50))) == {"refused", "scheduled"}
    assert docket.snapshot().total_tasks == 25


def test_an_event_loop_uses_it_through_threads(docket: Docket) -> None:
    async def main() -> list[str]:
        adds = (asyncio.to_thread(docket.add(double, when=later()), number) for number in range(20))
        return [execution.key for execution in await asyncio.gather(*adds)]

    assert len(set(asyncio.run(main()))) == 20


def scripts_run(server: ServerProcess) -> int:
    with server.client() as client:
        return sum(row["calls"] for name, row in client.info("commandstats").items() if name.startswith("cmdstat_eval"))
