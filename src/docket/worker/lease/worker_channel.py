"""Receives the messages on the worker's own channel: requests to cancel a run, functions whose
tasks wait for this worker, and vacant duties.

The next renewal brings the cancel requests again, in case a message was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from docket.codec.proofs import PROOF_SIZE, proven_body
from docket.ledger import Ledger
from docket.storage.subscriptions import Inquiry, Subscriptions
from docket.worker.fleet.duties import Duties
from docket.worker.running.runs import CancelReason, Runs

from .registration import Registration

_MOST_DOUBTFUL = 100


class WorkerChannel:
    """Cancels runs on request. A message counts only if it proves that a script sent it
    (docs/design/proofs.md)."""

    def __init__(
        self,
        ledger: Ledger,
        subscriptions: Subscriptions,
        runs: Runs,
        functions_wait: Callable[[Sequence[str]], None],
        registration: Registration,
        duties: Duties,
    ) -> None:
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._runs = runs
        self._functions_wait = functions_wait
        self._registration = registration
        self._duties = duties
        self._worker = b""
        self._channel: bytes | None = None
        self._inquiry = Inquiry(self._ask_server)
        # Functions whose tasks may wait, from messages that prove nothing.
        self._doubtful: set[str] = set()

    async def open(self, worker: str) -> None:
        """Subscribes to the channel of this worker id,
        instead of the channel of the previous id."""
        await self.close()
        self._worker = worker.encode()
        channel = self._ledger.keys.worker_channel(worker)
        await self._subscriptions.listen(channel, self._on_message)
        self._channel = channel

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        self._inquiry.close()
        if channel is not None:
            self._subscriptions.unlisten(channel, self._on_message)

    def cancel_runs(self, requests: Sequence[tuple[int, str]]) -> None:
        for epoch, _ in requests:
            self._cancel(epoch)

    def _on_message(self, message: bytes) -> None:
        """The message has the name of a function, or the epoch of a run to cancel and its key, or
        says that a duty is vacant."""
        secret = self._registration.secret
        request = proven_body(secret, b"C", b"cancel", self._worker, message)
        name = proven_body(secret, b"F", b"function", self._worker, message) if request is None else None
        if request is not None:
            epoch = request.partition(b" ")[0]
            if epoch.isdigit():
                self._cancel(int(epoch))
        elif name is not None:
            self._functions_wait([_text(name)])
        elif proven_body(secret, b"D", b"duty", self._worker, message) is not None:
            # The renewal tells this worker to take the duty. Anybody may send the message again.
            if self._duties.willing:
                self._inquiry.request()
        else:
            self._ignore(message)

    def _ignore(self, message: bytes) -> None:
        """The server knows all cancel requests, and whether tasks of a function wait."""
        self._subscriptions.ignored.note("a worker")
        if message.startswith(b"F") and len(self._doubtful) < _MOST_DOUBTFUL:
            self._doubtful.add(_text(message[1 + PROOF_SIZE :]))
        self._inquiry.request()

    def _ask_server(self) -> None:
        doubtful, self._doubtful = self._doubtful, set()
        if doubtful:
            self._functions_wait(list(doubtful))
        self._registration.renew_now()

    def _cancel(self, epoch: int) -> None:
        run = self._runs.find(epoch)
        if run is not None:
            run.cancel(CancelReason.REQUESTED)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
