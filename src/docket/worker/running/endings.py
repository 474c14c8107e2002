"""Makes the settlements that end a task: its state, and its value or error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docket.dependencies import TaskOutcome
from docket.ledger import Ending, Settlement, complete, finish
from docket.ledger.endings import ERROR, VALUE, ending_event
from docket.ledger.letter_notes import LetterNote
from docket.ledger.payloads import Payload
from docket.model.states import ExecutionState
from docket.storage.records import is_revived

from .failure_notes import FailureNotes
from .results import Results
from .run_endings import RunEndings
from .runs import Run
from .write_patience import WritePatience

if TYPE_CHECKING:
    from docket.worker.worker import Worker


class Endings:
    """Makes the final settlements of one worker's runs. A large value is stored before the
    settlement that refers to it."""

    def __init__(self, worker: Worker, write_patience: WritePatience) -> None:
        self._worker = worker
        self._ttl_ms = worker.docket.ledger.ttl_ms
        self._max_payload = worker.docket.max_payload
        self._payloads = worker.docket.payloads
        self._nothing = Ending(worker.name).pack()
        self._letters = FailureNotes(worker)
        self.results: Results = Results(worker.docket, write_patience)
        self.run_endings: RunEndings = RunEndings(worker, self.results)

    async def of(self, run: Run, ended: TaskOutcome, has_progress: bool, *, keep: bool = True) -> Settlement:
        """COMPLETED or FAILED. A value that cannot be stored fails the task: then the error becomes
        the exception of `ended`. A task that failed is kept as a dead letter, if `keep` says so."""
        if not self._ttl_ms:
            ending, state = await self.run_endings.published(run, ended)
            letter = self._letter(run, ended, ending, keep)
            return self._settlement(run, state, ending, has_progress, letter=letter)
        if ended.exception is not None:
            return await self._failed(run, ended, has_progress, keep)
        if ended.result is None:
            return self.completed(run, has_progress)
        ending = Ending(self._worker.name)
        try:
            await self.results.put(run, ended.result, ending)
        except Exception as error:
            ended.exception = error
            return await self._failed(run, ended, has_progress, keep)
        payload = await self.results.store_apart(run, ending)
        return self._settlement(run, ExecutionState.COMPLETED, ending, has_progress, payload=payload)

    def completed(self, run: Run, has_progress: bool) -> Settlement:
        """COMPLETED, without a value."""
        if not has_progress and self._ttl_ms:
            return complete(run.key, run.epoch, self._nothing)
        return self._settlement(run, ExecutionState.COMPLETED, Ending(self._worker.name), has_progress)

    def cancelled(self, run: Run, reason: str | None = None, has_progress: bool = False) -> Settlement:
        return self._settlement(run, ExecutionState.CANCELLED, Ending(self._worker.name, reason), has_progress)

    def not_run(self, run: Run, reason: str) -> Settlement:
        """CANCELLED before the body began. A task that was retried from a dead letter is a dead
        letter again: nobody has asked for its end."""
        letter = self._letters.of_not_run(run, reason) if is_revived(run.record) else None
        return self._settlement(run, ExecutionState.CANCELLED, Ending(self._worker.name, reason), letter=letter)

    def failed(self, run: Run, error: BaseException) -> Settlement:
        ending = self._of_error(run, error)
        letter = self._letters.of_failure(run, error, ending)
        return self._settlement(run, ExecutionState.FAILED, ending, letter=letter)

    def unreadable(self, run: Run, error: BaseException) -> Settlement:
        ending = self._of_error(run, error)
        letter = self._letters.of_unreadable(run, error, ending)
        return self._settlement(run, ExecutionState.FAILED, ending, letter=letter)

    async def _failed(self, run: Run, ended: TaskOutcome, has_progress: bool, keep: bool) -> Settlement:
        assert ended.exception is not None
        ending = self._of_error(run, ended.exception)
        letter = self._letter(run, ended, ending, keep)
        payload = await self.results.store_apart(run, ending)
        return self._settlement(run, ExecutionState.FAILED, ending, has_progress, letter=letter, payload=payload)

    def _letter(self, run: Run, ended: TaskOutcome, ending: Ending, keep: bool) -> LetterNote | None:
        if ended.exception is None or not keep:
            return None
        return self._letters.of_failure(run, ended.exception, ending, ended.duration)

    def _of_error(self, run: Run, error: BaseException) -> Ending:
        payload = self._payloads.seal_error(run.key, run.epoch, ExecutionState.FAILED, error, self._max_payload)
        return Ending(self._worker.name, self._payloads.error_text(error), ERROR, payload)

    def _settlement(
        self,
        run: Run,
        state: ExecutionState,
        ending: Ending,
        has_progress: bool = False,
        *,
        letter: LetterNote | None = None,
        payload: Payload | None = None,
    ) -> Settlement:
        if state is ExecutionState.COMPLETED and self._ttl_ms and not has_progress and payload is None:
            return complete(run.key, run.epoch, ending.pack())
        event = ending_event(state, self._worker.name_json, self._worker.now_ms(), ending.error)
        return finish(
            run.key,
            run.epoch,
            state,
            self._ttl_ms,
            ending.pack(),
            event,
            letter=letter,
            has_progress=has_progress,
            payload=payload,
        )


class SignedEndings(Endings):
    """The endings of a docket that signs. There, even a run that returned None has a sealed result:
    nobody else can make a task look completed."""

    def completed(self, run: Run, has_progress: bool) -> Settlement:
        payload = self.results.seal(run, None)
        return self._settlement(
            run, ExecutionState.COMPLETED, Ending(self._worker.name, None, VALUE, payload), has_progress
        )


def endings_of(worker: Worker, write_patience: WritePatience) -> Endings:
    kind = SignedEndings if worker.docket.payloads.signs else Endings
    return kind(worker, write_patience)
