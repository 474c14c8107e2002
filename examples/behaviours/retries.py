"""Retries of a failed task: how many, when, and for which errors."""

import asyncio
from datetime import timedelta

from docket import Docket, ExponentialRetry, Retry, Worker

calls: list[str] = []


class Unavailable(Exception):
    """The other side is busy."""


async def fetch(url: str, retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=10))) -> str:
    calls.append(f"fetch {retry.attempt}")
    if retry.attempt < 3:
        raise Unavailable(url)
    return "page"


async def pay(
    retry: Retry = ExponentialRetry(
        attempts=5, minimum_delay=timedelta(milliseconds=5), jitter=0.2, on=(Unavailable,), never=(ValueError,)
    ),
) -> None:
    calls.append("pay")
    raise ValueError("no such account")  # no retry for this error


async def poll(retry: Retry = Retry.forever()) -> str:
    calls.append("poll")
    if retry.attempt == 1:
        retry.after(timedelta(milliseconds=10))  # not ready: run again at that time
    return "ready"


async def main() -> None:
    async with Docket(name="retries", url="memory://retries") as docket:
        page = await docket.add(fetch)("https://example.com")
        payment = await docket.add(pay)()
        status = await docket.add(poll)()
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        assert await page.get_result() == "page"
        assert await status.get_result() == "ready"
        try:
            await payment.get_result()
        except ValueError as error:
            print("paid once, without success:", error)
    assert sorted(calls) == ["fetch 1", "fetch 2", "fetch 3", "pay", "poll", "poll"]


asyncio.run(main())
