"""What is said on the worker's own channel: orders to cancel
a run, and functions whose tasks wait for this worker.

CancelListener are read again with the next renewal in case the message was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from docket.ledger import Ledger
from docket.storage.subscriptions import Subscriptions

from .runs import CancelReason, Runs


class CancelListener:
    """Listens on the worker's own channel."""

    def __init__(
        self, ledger: Ledger, subscriptions: Subscriptions, runs: Runs, function_waits: Callable[[str], None]
    ) -> None:
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._runs = runs
        self._function_waits = function_waits
        self._channel: bytes | None = None

    async def open(self, worker: str) -> None:
        """Listens for this worker id, and no longer for the one before."""
        await self.close()
        channel = self._ledger.keys.worker_channel(worker)
        await self._subscriptions.listen(channel, self._heard)
        self._channel = channel

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            self._subscriptions.unlisten(channel, self._heard)

    def carry_out(self, orders: Sequence[tuple[int, str]]) -> int:
        for epoch, _ in orders:
            self._cancel(epoch)
        return len(orders)

    def _heard(self, message: bytes) -> None:
        what, _, rest = message.partition(b" ")
        if what == b"function":
            self._function_waits(rest.decode("utf-8", "backslashreplace"))
        else:
            self._cancel(int(what))

    def _cancel(self, epoch: int) -> None:
        run = self._runs.find(epoch)
        if run is not None:
            run.cancel(CancelReason.ORDERED)
