"""Says how tasks that failed for good are kept (docs/design/dead-letters.md)."""

from __future__ import annotations

import platform
from datetime import timedelta
from typing import TYPE_CHECKING

from docket._version import __version__
from docket.codec.error_texts import class_name
from docket.codec.tracebacks import failure_place
from docket.dependencies import kept_age_ms, logged_fingerprints
from docket.errors import PayloadRefused, TooLong, Undecodable
from docket.instrumentation import inject_context
from docket.ledger import Ending
from docket.ledger.endings import ERROR, cut
from docket.ledger.letter_notes import DeathCause, LetterNote, RunNote, fingerprint_lines
from docket.model.states import ExecutionState
from docket.storage.records import read_task
from docket.worker.fleet.deploys import deploy_fingerprint

from .runs import Run

if TYPE_CHECKING:
    from docket.worker.worker import Worker


# An encrypted exception that is larger is not kept in the letter.
_LARGEST_SEALED = 16 * 1024


class FailureNotes:
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
