"""Adds single tasks from the threads of the callers, without the background event loop.

Two changes of threads cost more than the rest of an `add`. So callers send their tasks themselves,
over a blocking connection. A caller that is alone sends its task at once; callers that come
meanwhile share the next request.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from docket.docket import Docket
from docket.errors import ServerUnreachable
from docket.execution import Execution
from docket.ledger import EnqueueResult, NewTask
from docket.ledger.tasks import ENQUEUE_BATCH
from docket.scheduler import weigh
from docket.storage.client.clients import CallerClient
from docket.storage.server import ANSWER_SECONDS

from .loop_thread import LoopThread
from .shared_requests import NotSent, SenderGone, SharedRequests


class CallerAdds:
    """The blocking connection of one docket, which its callers share."""

    def __init__(self, docket: Docket, loop_thread: LoopThread) -> None:
        self._docket = docket
        self._loop_thread = loop_thread
        # A thread may wait for two requests: the one that is under way, and its own.
        self._requests: SharedRequests[NewTask, EnqueueResult] = SharedRequests(
            self._send, most=ENQUEUE_BATCH, weigh=weigh, patience=3 * ANSWER_SECONDS
        )
        self._client: CallerClient | None = None
        self._is_closed = False

    def send(self, execution: Execution, task: NewTask) -> bool:
        """Schedules a task. If it returns False, the background loop has to do that."""
        scheduler = self._docket.scheduler
        if not self._is_usual() or task.payload is not None or not scheduler.is_ready_for_threads():
            return False
        try:
            result = self._requests.call(task)
        except (ServerUnreachable, NotSent, SenderGone) as error:
            result = self._repeat(execution, task, error)
        scheduler.note(execution, result, task.replace)
        return True

    def _repeat(self, execution: Execution, task: NewTask, error: Exception) -> EnqueueResult:
        if not isinstance(error, ServerUnreachable):
            sent = isinstance(error, SenderGone)
            error = ServerUnreachable("the thread that sent the task was interrupted" if sent else "not sent")
            error.maybe_stored = sent
        return self._loop_thread.run(functools.partial(self._docket.scheduler.repeat, execution, task, error))

    def _send(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        if self._is_closed:
            raise NotSent
        return self._docket.ledger.tasks.enqueue_blocking(self._open_client(), tasks)

    def _is_usual(self) -> bool:
        """Whether the docket has one known server and shows the real time."""
        server = self._docket.server
        return server.is_reached and not server.is_cluster and not server.clock.is_frozen

    def _open_client(self) -> CallerClient:
        if self._client is None:
            ledger = self._docket.ledger
            self._client = CallerClient(ledger.server.threaded_client(lambda: ANSWER_SECONDS, ledger.keys.stream))
        return self._client

    def close(self) -> None:
        """Waits for the request that is under way."""
        self._requests.close(ANSWER_SECONDS)
        self.abandon()

    def abandon(self) -> None:
        """Closes the connection. In a forked child this closes only the child's copy."""
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
