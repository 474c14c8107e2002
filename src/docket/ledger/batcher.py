"""Calls that are made while another is under way share a round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from docket.storage.faults import ServerSilent

Item = TypeVar("Item")
Result = TypeVar("Result")


# What one script call is sent: more would hold up the server and the requests behind it.
BATCH_BYTES = 256 * 1024


def batch_end(
    items: Sequence[Item], start: int, most: int, weigh: Callable[[Item], int], budget: int = BATCH_BYTES
) -> int:
    """Where the batch that begins at `start` ends: it has
    one item at least, and the others fit into the budget."""
    end, last = start, min(start + most, len(items))
    while end < last:
        budget -= weigh(items[end])
        if budget < 0 and end > start:
            break
        end += 1
    return end


class Batcher(Generic[Item, Result]):
    """Collects items and sends them together: at once when
    the line is idle, so that only load makes batches.

    If the server does not answer in time, the items that wait for their turn share that failure.
    They were not sent, and another attempt would make them wait twice.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        most: int,
        weigh: Callable[[Item], int],
        in_flight: int,
        name: str,
    ) -> None:
        self._send = send
        self._most = most
        self._weigh = weigh
        self._allowed = in_flight
        self._name = name
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._starting: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Future[None]] = set()

    async def call(self, item: Item) -> Result:
        """The answer to one item. Where nothing is under way it goes out now, in the caller's own
        turn; what comes meanwhile gathers behind it."""
        if self._waiting or self._under_way:
            return await self.submit(item)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            (answer,) = await self._send([item])
        except ServerSilent as error:
            self._fail_waiting(error)
            raise
        finally:
            done.set_result(None)
            self._done(done)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit(self, item: Item) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start_carrier()
        return future

    async def drain(self) -> None:
        """Returns when everything submitted so far has been answered."""
        while self._waiting or self._under_way:
            if self._under_way:
                await asyncio.wait(set(self._under_way))
            else:
                await asyncio.sleep(0)

    def _start_carrier(self) -> None:
        """One at a time: it starts in the next tick and takes along whatever has come by then."""
        if self._starting is None and len(self._under_way) < self._allowed:
            task = self._starting = asyncio.get_running_loop().create_task(self._carry(), name=self._name)
            self._under_way.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._under_way.discard(task)
        if self._starting is task:
            # Cancelled before its first step.
            self._starting = None
        if self._waiting:
            self._start_carrier()

    def _fail_waiting(self, error: ServerSilent) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(ServerSilent(*error.args))
                # A caller that was cancelled meanwhile will not look.
                future.exception()

    def _weight(self, entry: tuple[Item, asyncio.Future[Result]]) -> int:
        return self._weigh(entry[0])

    async def _carry(self) -> None:
        self._starting = None
        end = batch_end(self._waiting, 0, self._most, self._weight)
        batch, self._waiting = self._waiting[:end], self._waiting[end:]
        if not batch:
            return
        if self._waiting:
            self._start_carrier()
        try:
            answers = await self._send([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else ConnectionAbortedError(str(error)))
                    # A caller that was cancelled meanwhile will not look.
                    future.exception()
            if isinstance(error, ServerSilent):
                self._fail_waiting(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
