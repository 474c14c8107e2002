"""Endings that are published and not stored: another run follows, or the docket keeps no records of
finished tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docket.dependencies import TaskOutcome
from docket.ledger import Ending, RunEnding
from docket.ledger.endings import APART, ERROR, VALUE, run_ending
from docket.ledger.payloads import LARGEST_RESULT, published_payload
from docket.model.states import ExecutionState
from docket.storage.subscriptions import may_have_listeners

from .results import Results
from .runs import Run

if TYPE_CHECKING:
    from docket.worker.worker import Worker


class RunEndings:
    """Makes the endings that are published for callers that wait for this run."""

    def __init__(self, worker: Worker, results: Results) -> None:
        self._worker = worker
        self._docket = worker.docket
        self._results = results

    async def of(self, run: Run, ended: TaskOutcome) -> RunEnding:
        """The ending of a run that is followed by another."""
        ending, state = await self.published(run, ended)
        return run_ending(ending, state, self._worker.name_json, self._worker.now_ms())

    async def published(self, run: Run, ended: TaskOutcome) -> tuple[Ending, ExecutionState]:
        """Does not fail for a value that cannot be encoded: callers that ask for the value get the
        error."""
        ending, state = Ending(self._worker.name), ExecutionState.COMPLETED
        payloads = self._docket.payloads
        if ended.exception is not None:
            state, ending.error = ExecutionState.FAILED, payloads.error_text(ended.exception)
            most = self._docket.max_payload
            ending.kind, ending.payload = ERROR, payloads.seal_error(run.key, run.epoch, state, ended.exception, most)
        elif ended.result is not None or payloads.signs:
            try:
                ending.kind, ending.payload = VALUE, self._results.seal(run, ended.result)
            except Exception as error:
                ending.kind, ending.payload = ERROR, payloads.seal_error(run.key, run.epoch, state, error)
        if len(ending.payload) > LARGEST_RESULT:
            await self._store_apart(run, ending)
        return ending, state

    async def _store_apart(self, run: Run, ending: Ending) -> None:
        """A large value is stored only if a caller listens. Otherwise every run of a chain would
        leave a value on the server."""
        payload = published_payload(run.epoch, ending.payload)
        channel = self._docket.keys.task_channel(run.key)
        if await may_have_listeners(self._docket.server, channel):
            await self._results.store(run, payload)
        ending.kind, ending.payload = APART, payload.reference
