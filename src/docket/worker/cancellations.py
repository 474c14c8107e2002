"""Receives the messages on the worker's own channel: requests to cancel a run, and functions whose
tasks wait for this worker.

The next renewal brings the cancel requests again, in case a message was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from docket.ledger import Ledger
from docket.storage.subscriptions import Subscriptions

from .runs import CancelReason, Runs


class CancelListener:
    """Cancels runs on request."""

    def __init__(
        self, ledger: Ledger, subscriptions: Subscriptions, runs: Runs, function_waits: Callable[[str], None]
    ) -> None:
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._runs = runs
        self._function_waits = function_waits
        self._channel: bytes | None = None

    async def open(self, worker: str) -> None:
        """Subscribes to the channel of this worker id,
        instead of the channel of the previous id."""
        await self.close()
        channel = self._ledger.keys.worker_channel(worker)
        await self._subscriptions.listen(channel, self._on_message)
        self._channel = channel

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            self._subscriptions.unlisten(channel, self._on_message)

    def cancel_runs(self, requests: Sequence[tuple[int, str]]) -> None:
        for epoch, _ in requests:
            self._cancel(epoch)

    def _on_message(self, message: bytes) -> None:
        """The message is `function <name>`, or the epoch of a run to cancel."""
        kind, _, name = message.partition(b" ")
        if kind == b"function":
            self._function_waits(name.decode("utf-8", "backslashreplace"))
        else:
            self._cancel(int(kind))

    def _cancel(self, epoch: int) -> None:
        run = self._runs.find(epoch)
        if run is not None:
            run.cancel(CancelReason.ORDERED)
