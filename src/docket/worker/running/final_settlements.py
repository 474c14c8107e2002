"""The settlements that end a task: its state, its value or error,
and what its dead letter says (docs/design/dead-letters.md). Values
and exceptions are encoded here, and stored if they are large."""

from __future__ import annotations

import asyncio
import base64
import logging
import platform
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docket._version import __version__
from docket.codec.error_texts import class_name, failure_place
from docket.dependencies import TaskOutcome, kept_age_ms, logged_fingerprints
from docket.docket import Docket
from docket.errors import PayloadRefused, PayloadTooLarge, TooLong, Undecodable
from docket.instrumentation import inject_context
from docket.ledger import Ending, Settlement, complete, finish
from docket.ledger.endings import APART, ELSEWHERE, ERROR, VALUE, cut, ending_event
from docket.ledger.letters import DeathCause, LetterNote, RunNote, fingerprint_lines
from docket.ledger.payloads import (
    LARGEST_CALL,
    LARGEST_RESULT,
    Payload,
    call_payload,
    published_payload,
    result_payload,
)
from docket.model.states import ExecutionState
from docket.storage.records import is_revived, read_task
from docket.storage.subscriptions import may_have_listeners
from docket.worker.children.process_calls import SealedResult
from docket.worker.fleet.duties import deploy_fingerprint

from .runs import Run
from .settlement_writer import WriteDeadlines

if TYPE_CHECKING:
    from docket.worker.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")


class Results:
    """Puts a value into its ending, or stores it and puts a reference to it into the ending."""

    def __init__(self, docket: Docket, deadlines: WriteDeadlines) -> None:
        self._docket = docket
        self._deadlines = deadlines
        self._ttl_ms = docket.ledger.ttl_ms

    def seal(self, run: Run, result: Any) -> bytes:
        """Raises Unserializable or PayloadTooLarge."""
        payload = result.data if isinstance(result, SealedResult) else self._seal(run, result)
        if len(payload) > self._docket.max_payload:
            raise PayloadTooLarge(
                f"the result takes {len(payload):,} bytes, more than the {self._docket.max_payload:,} allowed "
                "(Docket(max_payload=…)); store it elsewhere and return the address"
            )
        return payload

    def _seal(self, run: Run, result: Any) -> bytes:
        function = run.execution.function
        return self._docket.payloads.seal_result(run.key, run.epoch, ExecutionState.COMPLETED, function, result)

    async def put(self, run: Run, result: Any, ending: Ending) -> None:
        """Raises Unserializable or PayloadTooLarge, or any error of the result storage."""
        payload = self.seal(run, result)
        storage = self._docket.given_result_storage
        if storage is None:
            ending.kind, ending.payload = VALUE, payload
            return
        # Named after the run, not the key: a run that no longer
        # counts cannot overwrite its successor's result.
        name = f"{run.key}:{run.epoch}"
        await storage.put(
            name,
            {"data": base64.b64encode(payload).decode()},
            collection=self._docket.results_collection,
            ttl=self._ttl_ms / 1000,
        )
        ending.kind, ending.payload = ELSEWHERE, name.encode("utf-8", "surrogatepass")

    async def store_apart(self, run: Run, ending: Ending) -> Payload | None:
        """Stores a large value or exception, and leaves a reference to it in the ending."""
        if len(ending.payload) <= LARGEST_RESULT:
            return None
        payload = result_payload(run.epoch, ending.payload, self._ttl_ms)
        await self.store(run, payload)
        ending.kind, ending.payload = APART, payload.reference
        return payload

    async def store_for_listeners(self, run: Run, ending: Ending) -> None:
        """Stores a large value of a run that another one follows, but only if a caller listens.
        Otherwise every run of a chain would leave a value on the server."""
        payload = published_payload(run.epoch, ending.payload)
        if await may_have_listeners(self._docket.server, self._docket.keys.task_channel(run.key)):
            await self.store(run, payload)
        ending.kind, ending.payload = APART, payload.reference

    async def store_call(self, run: Run, call: bytes | None) -> Payload | None:
        """Stores the call of the next run if it is too large for the record."""
        if call is None or len(call) <= LARGEST_CALL:
            return None
        payload = call_payload(call, ends_a_run=True)
        await self.store(run, payload)
        return payload

    async def store(self, run: Run, payload: Payload) -> None:
        """Tries until the payload is stored. Each try may take twice as long as the one before. A
        worker that stops cancels the run if that takes too long.

        Raises CancelledError itself if the payload cannot be stored for a long time although the
        lease is renewed: then the task is requeued.
        """
        patience, size = 1.0, f"{len(payload.data):,}"
        deadline = self._deadlines.begin(len(payload.data))

        def try_longer(error: Exception) -> None:
            nonlocal patience
            patience *= 2
            if deadline.is_over:
                logger.error(
                    "%s bytes for task %r could not be stored for %.0f s; the task is requeued and runs again",
                    size, run.key, deadline.seconds,
                )  # fmt: skip
                raise asyncio.CancelledError("docket: the result cannot be stored") from error

        run.storing_since = time.monotonic()
        try:
            await self._docket.server.outages.until_answered(
                lambda: self._docket.ledger.payloads.store(payload, patience=patience),
                f"storing {size} bytes for task {run.key!r}",
                on_failure=try_longer,
            )
        finally:
            run.storing_since = None


# An encrypted exception that is larger is not kept in the letter.
_LARGEST_SEALED = 16 * 1024


class FinalSettlements:
    """Makes the final settlements of one worker's runs. A large value is stored before the
    settlement that refers to it."""

    def __init__(self, worker: Worker, deadlines: WriteDeadlines) -> None:
        self._worker = worker
        self._ttl_ms = worker.docket.ledger.ttl_ms
        self._max_payload = worker.docket.max_payload
        self._payloads = worker.docket.payloads
        # In a docket that signs, even a run that returned None has a sealed result: nobody else can
        # make a task look completed.
        self._signs = worker.docket.payloads.signs
        self._nothing = Ending(worker.name).pack()
        self._letters = LetterNotes(worker)
        self.results: Results = Results(worker.docket, deadlines)

    async def of(self, run: Run, ended: TaskOutcome, has_progress: bool, *, keep: bool = True) -> Settlement:
        """COMPLETED or FAILED. A value that cannot be stored fails the task: then the error becomes
        the exception of `ended`. A task that failed is kept as a dead letter, if `keep` says so."""
        if not self._ttl_ms:
            ending, state = await self.published(run, ended)
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
        if not has_progress and self._ttl_ms and not self._signs:
            return complete(run.key, run.epoch, self._nothing)
        ending = Ending(self._worker.name)
        if self._signs:
            ending.kind, ending.payload = VALUE, self.results.seal(run, None)
        return self._settlement(run, ExecutionState.COMPLETED, ending, has_progress)

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

    async def published(self, run: Run, ended: TaskOutcome) -> tuple[Ending, ExecutionState]:
        """The ending of a run that is published for callers that wait for it, and not stored. Does
        not fail for a value that cannot be encoded: callers that ask for the value get the
        error."""
        ending, state = Ending(self._worker.name), ExecutionState.COMPLETED
        if ended.exception is not None:
            state, ending = ExecutionState.FAILED, self._of_error(run, ended.exception)
        elif ended.result is not None or self._signs:
            try:
                ending.kind, ending.payload = VALUE, self.results.seal(run, ended.result)
            except Exception as error:
                ending.kind, ending.payload = ERROR, self._payloads.seal_error(run.key, run.epoch, state, error)
        if len(ending.payload) > LARGEST_RESULT:
            await self.results.store_for_listeners(run, ending)
        return ending, state

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


class LetterNotes:
    """Makes the notes for the dead letters of one worker's runs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._docket = worker.docket
        self._keep = worker.docket.keep_failures
        self._payloads = worker.docket.payloads
        # Made for the first failure: most workers need it rarely.
        self._deploy: str | None = None

    def of_failure(
        self, run: Run, error: BaseException, ending: Ending, duration: timedelta | None = None
    ) -> LetterNote | None:
        """None if tasks of this function are not kept."""
        execution = run.execution
        declared = kept_age_ms(execution.function)
        age_ms = self._keep.age_ms if declared is None else declared
        if not age_ms:
            return None
        # A fingerprint does not hide a value from a reader who can guess it and compare.
        marks = {} if self._payloads.encrypts else self._marks(run)
        return self._note(run, DeathCause.FAILED, age_ms, error, ending, fingerprint_lines(marks), duration)

    def of_unreadable(self, run: Run, error: BaseException, ending: Ending) -> LetterNote:
        """The note says that the task is not kept, if its function is not kept: the chain of an
        automatic task must stop in any case."""
        function = self._docket.tasks.get(read_task(run.record).function_name)
        declared = kept_age_ms(function) if function is not None else None
        reason = DeathCause.REFUSED if isinstance(error, PayloadRefused) else DeathCause.UNDECODABLE
        return self._note(run, reason, self._keep.age_ms if declared is None else declared, error, ending)

    def of_not_run(self, run: Run, reason: str) -> LetterNote:
        """The note for a task that was retried and could not run."""
        declared = kept_age_ms(run.execution.function)
        rest = RunNote(self._worker.name, __version__).pack()
        return LetterNote(
            DeathCause.NOT_RUN,
            self._keep.age_ms if declared is None else declared,
            self._keep.letters,
            self._keep.size,
            text=reason,
            rest=rest,
        )

    def _note(
        self,
        run: Run,
        reason: DeathCause,
        age_ms: int,
        error: BaseException,
        ending: Ending,
        arguments: bytes = b"",
        duration: timedelta | None = None,
    ) -> LetterNote:
        seconds = None if duration is None else duration.total_seconds()
        if self._deploy is None:
            self._deploy = deploy_fingerprint(self._docket.tasks)
        rest = RunNote(self._worker.name, __version__, platform.python_version(), self._deploy, _trace(), seconds)
        is_sealed = self._payloads.encrypts
        return LetterNote(
            reason,
            age_ms,
            self._keep.letters,
            self._keep.size,
            class_name(error),
            failure_place(error),
            arguments,
            cut(ending.error) or "",
            self._sealed(ending) if is_sealed else self._traceback(run, ending),
            is_sealed,
            rest.pack(),
        )

    def _marks(self, run: Run) -> dict[str, str]:
        execution = run.execution
        return logged_fingerprints(execution.function, execution.args, execution.kwargs)

    def _sealed(self, ending: Ending) -> bytes:
        """The encrypted exception, which has the traceback."""
        return ending.payload if ending.kind == ERROR and len(ending.payload) <= _LARGEST_SEALED else b""

    def _traceback(self, run: Run, ending: Ending) -> bytes:
        """The exception has been sealed with its traceback, which is not formatted twice."""
        if ending.kind != ERROR:
            return b""
        try:
            text = self._payloads.open_traceback(run.key, run.epoch, ExecutionState.FAILED, ending.payload)
        except Undecodable:
            return b""
        return (text or "").encode()


def _trace() -> dict[str, str] | None:
    """The trace of the run, if it is traced."""
    try:
        return inject_context()
    except TooLong:
        return None
