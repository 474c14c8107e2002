"""Runs the scripts of one docket, for the areas of the ledger: one call at a time, or in batches of
the requests that are made while another is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from docket.codec.packing import pack_for_script, script_packer
from docket.codec.proofs import new_secret
from docket.model.bounds import MAX_LOSSES
from docket.model.retention import Keep
from docket.storage.client.faults import ServerSilent
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

# How long the offer of a slot is valid unless the worker renews it. The time is short, because a
# worker whose event loop is blocked must not get tasks for long.
OFFER_MS = 8000


class ScriptCalls:
    """The keys of one docket, the settings that scripts receive, and its scripts by name."""

    offer_ms: int = OFFER_MS

    def __init__(
        self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES, keep: Keep | None = None
    ) -> None:
        self.server = server
        self.keys = keys
        self.ttl_ms = ttl_ms
        self.max_losses = max_losses
        # How tasks that failed for good are kept.
        self.keep: Keep = keep or Keep()
        self.keep_ms: int = self.keep.age_ms
        # The secret of the docket from now on, if the docket has none (docs/design/proofs.md).
        self.fresh_secret: bytes = new_secret()
        # They hear which pauses that compare arguments are in force when a claim is made.
        self.pause_listeners: set[Callable[[bytes], None]] = set()
        self._channels = text_bytes(keys.channels)
        self._root = [keys.root]
        # For the event loop only. Threads that renew leases pack with their own buffer.
        self._pack = script_packer()

    def run_script(self, script: str, arguments: Any, patience: float | None = None) -> Coroutine[Any, Any, Any]:
        """Runs a script. Only the areas call this; other modules call the methods of the areas."""
        return self.server.run(script, self._root, self._channels, self._pack(arguments), patience=patience)

    def run_script_and_wait(
        self, script: str, arguments: Any, wait_ms: int
    ) -> Coroutine[Any, Any, tuple[Any, int | BaseException]]:
        """Runs a script and waits for a replica: the script's answer, and how many replicas have
        what it wrote, or the error instead."""
        return self.server.run_and_wait(script, self._root, self._channels, self._pack(arguments), wait_ms=wait_ms)

    def run_script_blocking(self, client: Any, script: str, arguments: Any) -> Any:
        """Runs a script from a thread, on the thread's own blocking client."""
        return self.server.run_blocking(client, script, self._root, self._channels, pack_for_script(arguments))


class Area:
    """The scripts about one subject, one method each."""

    def __init__(self, calls: ScriptCalls) -> None:
        self._calls = calls


Item = TypeVar("Item")
Result = TypeVar("Result")


# The most bytes for one script call. More would block
# the server and the requests that wait behind it.
BATCH_BYTES = 256 * 1024


def batch_end(
    items: Sequence[Item], start: int, most: int, weigh: Callable[[Item], int], budget: int = BATCH_BYTES
) -> int:
    """The end of the batch that begins at `start`. A batch has at least one item, and all further
    items fit into the budget."""
    end, last = start, min(start + most, len(items))
    while end < last:
        budget -= weigh(items[end])
        if budget < 0 and end > start:
            break
        end += 1
    return end


class Batcher(Generic[Item, Result]):
    """Collects items and sends them together. An item is sent at once if no request is under way,
    so batches arise only under load.

    If the server does not answer in time, the items that are not sent yet fail with the same error.
    Otherwise they would wait for a second timeout.
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
        self._max_in_flight = in_flight
        self._name = name
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._starting: asyncio.Task[None] | None = None
        self._in_flight: set[asyncio.Future[None]] = set()

    async def call(self, item: Item) -> Result:
        """The answer to one item. If no request is under way, the caller sends the item itself, at
        once. Items that arrive in the meantime form the next batch."""
        if self._waiting or self._in_flight:
            return await self.submit(item)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight.add(done)
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
        self._start_sending()
        return future

    async def flush(self) -> None:
        """Returns when all items are answered."""
        while self._waiting or self._in_flight:
            if self._in_flight:
                await asyncio.wait(set(self._in_flight))
            else:
                await asyncio.sleep(0)

    def _start_sending(self) -> None:
        """Starts a task that sends the next batch. It starts in the next loop iteration, so that it
        includes all items that were submitted in this one. Only one such task starts at a time."""
        if self._starting is None and len(self._in_flight) < self._max_in_flight:
            task = self._starting = asyncio.get_running_loop().create_task(self._send_batch(), name=self._name)
            self._in_flight.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._in_flight.discard(task)
        if self._starting is task:
            # The task was cancelled before its first step.
            self._starting = None
        if self._waiting:
            self._start_sending()

    def _fail_waiting(self, error: ServerSilent) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(ServerSilent(*error.args))
                # Mark the exception as retrieved: a cancelled caller will not read it.
                future.exception()

    def _weight(self, entry: tuple[Item, asyncio.Future[Result]]) -> int:
        return self._weigh(entry[0])

    async def _send_batch(self) -> None:
        self._starting = None
        end = batch_end(self._waiting, 0, self._most, self._weight)
        batch, self._waiting = self._waiting[:end], self._waiting[end:]
        if not batch:
            return
        if self._waiting:
            self._start_sending()
        try:
            answers = await self._send([item for item, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else ConnectionAbortedError(str(error)))
                    # Mark the exception as retrieved: a cancelled caller will not read it.
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
