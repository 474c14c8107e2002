"""How an adapter talks with the harness: one JSON order
per line on standard input, one JSON answer per line."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from bench.adapters.marks import Marks, shared_marks

URL = os.environ.get("BENCH_URL", "redis://localhost:6379/0")
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "10"))
# Whether tasks keep their results. Only measurements of
# results ask for it: not every system keeps them by default.
RESULTS = os.environ.get("BENCH_RESULTS") == "1"
# Whether the worker logs as its command does by default. Elsewhere it logs warnings only.
DEFAULT_LOG = os.environ.get("BENCH_LOG") == "default"
# Whether functions compute, so that each slot is a process.
PROCESSES = os.environ.get("BENCH_POOL") == "processes"
# What plain functions do.
NOTHING, BLOCK, COMPUTE = "nothing", "block", "compute"

CHUNK = 1000
IN_FLIGHT = 20
POLL_SECONDS = 0.001
# Long enough for a worker to be waiting again, and irregular, so that pollers are met at any phase.
PAUSE_SECONDS = (0.005, 0.025)


class Unsupported(Exception):
    """The system has no such feature; the text says so in the table."""


class Producer:
    """What a system's producer can do. Methods of systems
    without asyncio simply do not await anything."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def enqueue(self, number: int) -> None:
        """Enqueues `mark(number)`."""
        raise Unsupported("cannot enqueue")

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueues many in the fastest documented way. Systems
        without a way of their own have many calls under way."""
        await at_once(self.enqueue(number) for number in numbers)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        """Enqueues tasks that sleep between their begin and their end."""
        raise Unsupported("cannot enqueue")

    async def enqueue_plain(self, kind: str, numbers: Sequence[int], seconds: float) -> None:
        """Enqueues plain functions, which are not async: NOTHING marks only, BLOCK sleeps for so
        many seconds, COMPUTE needs so much CPU time."""
        raise Unsupported("has no plain functions")

    async def enqueue_at(self, number: int, when: datetime) -> None:
        """Schedules `mark(number)` for later."""
        raise Unsupported("cannot schedule")

    async def enqueue_many_at(self, numbers: Sequence[int], when: datetime) -> None:
        raise Unsupported("cannot schedule in bulk")

    async def round_trip(self, number: int) -> int:
        """Enqueues a task that marks and returns its
        number, waits for the result and returns it."""
        raise Unsupported("keeps no results")


async def at_once(calls: Iterable[Awaitable[object]]) -> None:
    """Awaits all, in waves, so that no client needs more connections than its pool has."""
    wave: list[Awaitable[object]] = []
    for call in calls:
        wave.append(call)
        if len(wave) == IN_FLIGHT:
            await asyncio.gather(*wave)
            wave = []
    await asyncio.gather(*wave)


class Orders:
    """What the harness may order. Loops end at `count`
    or after `seconds`, whichever comes first."""

    def __init__(self, producer: Producer, marks: Marks) -> None:
        self.producer = producer
        self.marks = marks

    async def one_by_one(self, first: int, count: int, seconds: float) -> dict[str, Any]:
        took: list[int] = []
        deadline = time.monotonic() + seconds
        for number in range(first, first + count):
            began = time.perf_counter_ns()
            await self.producer.enqueue(number)
            took.append(time.perf_counter_ns() - began)
            if time.monotonic() > deadline:
                break
        return {"count": len(took), "seconds": sum(took) / 1e9, "each_ms": milliseconds(took)}

    async def bulk(self, first: int, count: int, seconds: float) -> dict[str, Any]:
        return await self._in_chunks(first, count, seconds, self.producer.enqueue_many)

    async def bulk_at(self, first: int, count: int, seconds: float, delay: float) -> dict[str, Any]:
        when = datetime.fromtimestamp(time.time() + delay, UTC)
        return await self._in_chunks(
            first, count, seconds, lambda numbers: self.producer.enqueue_many_at(numbers, when)
        )

    async def sleepers(self, first: int, count: int, sleep: float) -> dict[str, Any]:
        return await self._in_chunks(
            first, count, float("inf"), lambda numbers: self.producer.enqueue_sleepers(numbers, sleep)
        )

    async def plain(self, first: int, count: int, seconds: float, kind: str, each: float) -> dict[str, Any]:
        return await self._in_chunks(
            first, count, seconds, lambda numbers: self.producer.enqueue_plain(kind, numbers, each)
        )

    async def probe(self, number: int, seconds: float) -> dict[str, Any]:
        """Whether a worker runs."""
        await self.producer.enqueue(number)
        await self._wait_for(number, seconds)
        return {}

    async def latencies(self, first: int, count: int, seconds: float, patience: float) -> dict[str, Any]:
        took: list[int] = []
        deadline = time.monotonic() + seconds
        for number in range(first, first + count):
            began = time.monotonic_ns()
            await self.producer.enqueue(number)
            await self._wait_for(number, patience)
            took.append(self.marks.began[number] - began)
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
            if time.monotonic() > deadline:
                break
        return {"each_ms": milliseconds(took)}

    async def round_trips(self, first: int, count: int, seconds: float, patience: float) -> dict[str, Any]:
        took: list[int] = []
        deadline = time.monotonic() + seconds
        for number in range(first, first + count):
            began = time.monotonic_ns()
            async with asyncio.timeout(patience):
                value = await self.producer.round_trip(number)
            took.append(time.monotonic_ns() - began)
            if value != number:
                raise RuntimeError(f"the result of task {number} is {value!r}")
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
            if time.monotonic() > deadline:
                break
        return {"each_ms": milliseconds(took)}

    async def scheduled(self, first: int, count: int, delay: float, window: float, patience: float) -> dict[str, Any]:
        """Lateness of tasks due within `window` seconds after
        `delay`. One that never ran is as late as we waited."""
        due = sorted(time.time() + delay + random.uniform(0, window) for _ in range(count))
        for number, when in enumerate(due, first):
            await self.producer.enqueue_at(number, datetime.fromtimestamp(when, UTC))
        clocks_apart = time.time_ns() - time.monotonic_ns()
        deadline = due[-1] + patience
        while self.marks.done(first, count) < count and time.time() < deadline:  # noqa: ASYNC110, other processes mark
            await asyncio.sleep(0.02)
        given_up = time.monotonic_ns()
        late = [
            (self.marks.began[number] or given_up) + clocks_apart - int(when * 1e9)
            for number, when in enumerate(due, first)
        ]
        return {"each_ms": milliseconds(late), "missing": count - self.marks.done(first, count)}

    async def _in_chunks(
        self, first: int, count: int, seconds: float, send: Callable[[Sequence[int]], Awaitable[object]]
    ) -> dict[str, Any]:
        sent, began = 0, time.perf_counter()
        while sent < count and time.perf_counter() - began < seconds:
            size = min(CHUNK, count - sent)
            await send(range(first + sent, first + sent + size))
            sent += size
        return {"count": sent, "seconds": time.perf_counter() - began}

    async def _wait_for(self, number: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.marks.runs[number]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"a task had not run after {seconds:g} s")
            await asyncio.sleep(POLL_SECONDS)


def milliseconds(nanoseconds: Iterable[int]) -> list[float]:
    return [round(value / 1e6, 4) for value in nanoseconds]


async def serve(producer: Producer, answers: TextIO) -> None:
    orders = Orders(producer, shared_marks())
    await producer.open()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            answer = {"done": await getattr(orders, order.pop("order"))(**order)}
        except Unsupported as error:
            answer = {"unsupported": str(error)}
        except Exception as error:
            logging.exception("the order failed")
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    await producer.close()


def answer_orders(producer: Producer) -> None:
    """Serves until standard input ends."""
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(serve(producer, answers))
    # Some clients keep threads that end late; nothing is left to wait for.
    os._exit(0)


def run_program(*arguments: str) -> None:
    """Becomes a command-line program of the system, in the same virtual environment."""
    os.execv(sys.executable, [sys.executable, *arguments])
