"""Adds single tasks from the thread of the caller, without the background event loop.

Two changes of threads cost more than the rest of an `add`. So a caller that is alone sends its task
itself, over a blocking connection. Callers that come meanwhile use the background loop, where they
share requests.
"""

from __future__ import annotations

import functools
import threading

from docket.docket import Docket
from docket.errors import ServerUnreachable
from docket.ledger import EnqueueResult, NewTask
from docket.ledger.payloads import LARGEST_CALL
from docket.storage.caller_client import CallerClient
from docket.storage.server import ANSWER_SECONDS

from .loop_thread import LoopThread
from .prepared_execution import PreparedExecution


class CallerAdds:
    """The blocking connection of one docket, for one caller at a time."""

    def __init__(self, docket: Docket, loop_thread: LoopThread) -> None:
        self._docket = docket
        self._loop_thread = loop_thread
        self._turn = threading.Lock()
        self._client: CallerClient | None = None
        self._is_closed = False

    def add(self, execution: PreparedExecution, replace: bool) -> bool:
        """Schedules a task. If it returns False, the background loop has to do that."""
        scheduler = self._docket.scheduler
        if not self._is_usual() or execution.size > LARGEST_CALL or not scheduler.is_ready_for_threads():
            return False
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._is_closed:
                return False
            order = scheduler.order(execution, replace)
            if order is None:
                return True
            receipt = self._send(order)
        finally:
            self._turn.release()
        if isinstance(receipt, ServerUnreachable):
            receipt = self._loop_thread.run(functools.partial(scheduler.repeat, execution, order, receipt, replace))
        scheduler.note(execution, receipt, replace)
        return True

    def _send(self, order: NewTask) -> EnqueueResult | ServerUnreachable:
        try:
            return self._docket.ledger.enqueue_blocking(self._open_client(), order)
        except ServerUnreachable as error:
            return error

    def _is_usual(self) -> bool:
        """Whether the docket has one known server and shows the real time."""
        server = self._docket.server
        return server.is_reached and not server.is_cluster and not server.clock.is_held

    def _open_client(self) -> CallerClient:
        if self._client is None:
            ledger = self._docket.ledger
            self._client = CallerClient(ledger.server.threaded_client(lambda: ANSWER_SECONDS, ledger.keys.stream))
        return self._client

    def close(self) -> None:
        """Waits for the caller that sends just now."""
        if self._turn.acquire(timeout=ANSWER_SECONDS):
            try:
                self.abandon()
            finally:
                self._turn.release()

    def abandon(self) -> None:
        """Closes the connection. In a forked child this closes only the child's copy."""
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
