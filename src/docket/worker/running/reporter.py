"""Log lines and counters of runs. The attributes are made once per function, and the parts that all
lines of one kind share once per thread."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from docket.codec import error_text
from docket.dependencies import TaskOutcome, format_duration
from docket.errors import PayloadRefused
from docket.execution import Execution
from docket.execution.arguments import shows_values
from docket.execution.execution import NextRun
from docket.instrumentation import (
    PAYLOADS_REFUSED,
    TASK_DURATION,
    TASK_PUNCTUALITY,
    TASKS_CANCELLED,
    TASKS_COMPLETED,
    TASKS_FAILED,
    TASKS_PERPETUATED,
    TASKS_REDELIVERED,
    TASKS_RETRIED,
    TASKS_RUNNING,
    TASKS_STARTED,
    TASKS_STRICKEN,
    TASKS_SUCCEEDED,
    TASKS_SUPERSEDED,
    is_measured,
)
from docket.ledger import Settlement
from docket.model.states import EndingKind
from docket.model.texts import escaped
from docket.model.times import from_ms

logger: logging.Logger = logging.getLogger("docket.worker")
# Logs the decisions of a task's behaviours, such as another run.
behaviours: logging.Logger = logging.getLogger("docket.dependencies")


# The most functions that have labels of their own in metrics, and the label of all others.
MOST_FUNCTIONS = 1_000
OTHERS = "(others)"
# How much of an error's text the line of a retry has.
_LONGEST_ERROR = 300

# The counters of a run that ended in this way.
_COUNTERS: dict[EndingKind, tuple[Any, ...]] = {
    EndingKind.SUCCEEDED: (TASKS_SUCCEEDED,),
    EndingKind.FAILED: (TASKS_FAILED,),
    EndingKind.TIMED_OUT: (TASKS_FAILED,),
    EndingKind.UNKNOWN_FUNCTION: (TASKS_FAILED,),
    EndingKind.RETRIED: (TASKS_FAILED, TASKS_RETRIED),
    EndingKind.CANCELLED: (TASKS_CANCELLED,),
    EndingKind.STRUCK: (TASKS_CANCELLED,),
    EndingKind.DROPPED: (TASKS_CANCELLED,),
}

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
_traceback_of: Callable[[BaseException], TracebackType | None] = vars(BaseException)["__traceback__"].__get__


_new_record = logging.LogRecord.__new__
_templates: weakref.WeakSet[LogTemplate] = weakref.WeakSet()


class LogTemplate:
    """The parts of one kind of line: its logger, its level and its place in the code.

    `Logger.info` looks for its caller on the stack and asks for the names of process and thread for
    each line. That takes longer than a small task. Handlers, filters and levels see the same
    records.
    """

    def __init__(self, logger: logging.Logger, level: int, function: Any) -> None:
        self._logger = logger
        self._level = level
        code = function.__code__
        self._place = code.co_filename, code.co_firstlineno, code.co_name
        self._parts: dict[str, Any] = {}
        self._thread = 0
        self._loaded_at_ms = 0.0
        _templates.add(self)

    def log(self, message: str, args: tuple[Any, ...], extra: dict[str, Any]) -> None:
        """Logs a line. `extra` may not have the name of a field of records."""
        if logging.getLogRecordFactory() is not logging.LogRecord:
            # The application makes its own records.
            self._logger.handle(self._usual_record(message, args, extra))
            return
        now = time.time()
        thread = threading.get_ident()
        if thread != self._thread:
            self._prepare(thread)
        fields = {**self._parts, **extra}
        fields["msg"], fields["args"] = message, args
        fields["created"], fields["msecs"] = now, float(int(now % 1 * 1000))
        fields["relativeCreated"] = now * 1000 - self._loaded_at_ms
        if "taskName" in fields:
            fields["taskName"] = _task_name()
        record = _new_record(logging.LogRecord)
        record.__dict__ = fields
        self._logger.handle(record)

    def _usual_record(self, message: str, args: tuple[Any, ...], extra: dict[str, Any]) -> logging.LogRecord:
        file, line, function = self._place
        return self._logger.makeRecord(self._logger.name, self._level, file, line, message, args, None, function, extra)

    def forget(self) -> None:
        """After a fork, in the child: the parts name the parent. To ask for the id of the process
        is a call of the system, and would cost each line more than all else."""
        self._thread = 0

    def _prepare(self, thread: int) -> None:
        record = self._usual_record("", (), {})
        self._parts = dict(record.__dict__)
        self._loaded_at_ms = record.created * 1000 - record.relativeCreated
        self._thread = thread


@dataclass(slots=True)
class Reporter:
    """Logs and counts the runs of one worker."""

    labels: dict[str, str]
    by_function: dict[str, dict[str, str]]

    def attributes(self, execution: Execution) -> dict[str, str]:
        name = execution.function_name
        found = self.by_function.get(name)
        if found is None:
            if len(self.by_function) >= MOST_FUNCTIONS:
                # A fallback runs tasks of any name. Metrics must not grow with the names.
                name = OTHERS
            found = self.by_function[name] = {**self.labels, "docket.task": name}
        return found

    # twin of: _run_labels (reporter.py)
    def _extra(self, execution: Execution) -> dict[str, Any]:
        """The labels of this run. The record has its due time; the execution may already have that
        of the next run."""
        extra: dict[str, Any] = {**self.labels, **execution.specific_labels(), "redelivered": execution.redelivered}
        record, started = execution.record, execution.started_at
        if record is not None:
            due = from_ms(record.due_ms)
            extra["docket.attempt"], extra["docket.when"] = record.attempt, due.isoformat()
            if started is not None:
                extra["punctuality"] = (started - due).total_seconds()
        return extra

    # twin of: _extra (reporter.py)
    def _run_labels(self, execution: Execution, late: float) -> dict[str, Any]:
        """Makes what `_extra` makes, for a run that begins or
        that no other run follows, in a third of the time."""
        extra: dict[str, Any] = self.labels.copy()
        extra["docket.task"], extra["docket.key"] = execution.function_name, execution.key
        extra["docket.when"], extra["docket.attempt"] = execution.when.isoformat(), execution.attempt
        extra["redelivered"], extra["punctuality"] = execution.redelivered, late
        return extra

    def _ending_extra(self, execution: Execution, seconds: float, error: BaseException | None = None) -> dict[str, Any]:
        extra = {**self._extra(execution), "duration": seconds}
        if error is not None:
            extra["error_type"] = type(error).__qualname__
        return extra

    def started(self, execution: Execution) -> None:
        is_logged = logger.isEnabledFor(logging.INFO)
        if not is_logged and not is_measured():
            return
        assert execution.started_at is not None
        late = (execution.started_at - execution.when).total_seconds()
        if is_measured():
            attributes = self.attributes(execution)
            TASKS_STARTED.add(1, attributes)
            TASKS_RUNNING.add(1, attributes)
            TASK_PUNCTUALITY.record(max(late, 0.0), attributes)
            if execution.redelivered:
                TASKS_REDELIVERED.add(1, attributes)
        if is_logged:
            arrow = "↬" if execution.attempt > 1 else "↪"
            redelivered = " (redelivered)" if execution.redelivered else ""
            call, labels = execution.call_repr(), self._run_labels(execution, late)
            _STARTED.log("%s [%s] %s%s", (arrow, format_duration(late), call, redelivered), labels)
            if not shows_values(execution.function):
                # The line of the end has the same.
                execution.start_line = call, labels

    def over(self, execution: Execution, seconds: float) -> None:
        """The body has ended, or the run was not admitted: started − completed = running."""
        if not is_measured():
            return
        attributes = self.attributes(execution)
        TASKS_RUNNING.add(-1, attributes)
        TASKS_COMPLETED.add(1, attributes)
        TASK_DURATION.record(seconds, attributes)

    def count(self, execution: Execution, kind: EndingKind, settlement: Settlement | None) -> None:
        """Counts a run that is settled, or that a cancel has ended instead of its settlement."""
        if is_measured():
            attributes = self.attributes(execution)
            for counter in _counters_of(kind, settlement is not None and settlement.goes_on):
                counter.add(1, attributes)

    # twin of: log_end (reporter.py)
    def log_success(self, execution: Execution, seconds: float) -> None:
        """Does what `log_end` does, for a run that succeeded and that no other run follows."""
        if not logger.isEnabledFor(logging.INFO):
            return
        if execution.start_line is not None:
            call, labels = execution.start_line
        else:
            started = execution.started_at
            call = execution.call_repr()
            labels = self._run_labels(execution, (started - execution.when).total_seconds() if started else 0.0)
        labels["duration"] = seconds
        _SUCCEEDED.log("↩ [%s] %s", (format_duration(seconds), call), labels)

    def log_retry(self, execution: Execution, outcome: TaskOutcome, next_run: NextRun, attempts: int | None) -> None:
        """A failed attempt that another one follows. It is one line, because the failure of the
        last attempt counts. The traceback is for those who debug."""
        error = outcome.exception
        if error is None or not behaviours.isEnabledFor(logging.WARNING):
            return
        seconds, call = outcome.duration.total_seconds(), execution.call_repr()
        extra = self._ending_extra(execution, seconds, error)
        attempt = f"attempt {extra['docket.attempt']}" + (f" of {attempts}" if attempts is not None else "")
        again = next_run.in_words()
        text = escaped(error_text(error)[:_LONGEST_ERROR])
        behaviours.warning(
            "↫ [%s] %s: %s; %s, again %s", format_duration(seconds), call, text, attempt, again, extra=extra
        )
        behaviours.debug("the traceback of %s of %s", attempt, call, exc_info=_exc_info(error), extra=extra)

    # twin of: log_success (reporter.py)
    def log_end(self, execution: Execution, outcome: TaskOutcome, again: bool) -> None:
        """The worker's logger reports a failure, with its traceback. The behaviours' logger reports
        that the task runs again."""
        if outcome.exception is not None:
            self._log_end(logger, logging.ERROR, "↩", execution, outcome)
        if again:
            self._log_end(behaviours, logging.INFO, "↫", execution, outcome)
        elif outcome.exception is None:
            self._log_end(logger, logging.INFO, "↩", execution, outcome)

    def _log_end(self, log: logging.Logger, level: int, arrow: str, execution: Execution, outcome: TaskOutcome) -> None:
        if not log.isEnabledFor(level):
            return
        log.log(
            level,
            "%s [%s] %s",
            arrow,
            format_duration(outcome.duration.total_seconds()),
            execution.call_repr(),
            exc_info=_exc_info(outcome.exception) if level == logging.ERROR else None,
            extra=self._ending_extra(execution, outcome.duration.total_seconds(), outcome.exception),
        )

    def cancelled(self, execution: Execution, seconds: float) -> None:
        logger.info(
            "✗ [%s] %s (cancelled)",
            format_duration(seconds),
            execution.call_repr(),
            extra=self._ending_extra(execution, seconds),
        )

    def never_began(self) -> None:
        """A task was cancelled after the worker claimed it and before its run began."""
        TASKS_CANCELLED.add(1, self.labels)

    def struck(self, execution: Execution) -> None:
        TASKS_STRICKEN.add(1, {**self.attributes(execution), "docket.where": "worker"})
        logger.warning("🗙 %s", execution.call_repr(), extra=self._extra(execution))

    def held(self, execution: Execution) -> None:
        logger.info("⏸ %s is held by a pause", execution.call_repr(), extra=self._extra(execution))

    def refused(self, error: PayloadRefused) -> None:
        PAYLOADS_REFUSED.add(1, {**self.labels, "docket.where": "call", "docket.reason": error.reason})

    def blocked(self, execution: Execution, reason: str, what_next: str) -> None:
        logger.info("⧗ %s blocked by %s; %s", execution.call_repr(), reason, what_next, extra=self._extra(execution))

    def superseded(self, execution: Execution, where: str = "worker") -> None:
        TASKS_SUPERSEDED.add(1, {**self.attributes(execution), "docket.where": where})
        logger.info(
            "⊘ %s was replaced or taken over; this run changed nothing",
            execution.call_repr(),
            extra=self._extra(execution),
        )


def _counters_of(kind: EndingKind, goes_on: bool) -> tuple[Any, ...]:
    """The counters of a run that ended in this way, and whether another run of its task follows."""
    counters = _COUNTERS.get(kind, ())
    if not goes_on or kind is EndingKind.RETRIED:
        return counters
    # A run of a perpetual task that a limit has dropped is neither the end of the task nor a run.
    return () if kind is EndingKind.DROPPED else (*counters, TASKS_PERPETUATED)


def _exc_info(error: BaseException | None) -> ExcInfo | None:
    """The exception and its traceback. Its class may have a `__traceback__` of its own, which may
    raise."""
    return None if error is None else (type(error), error, _traceback_of(error))


def _task_name() -> str | None:
    """The name of the asyncio task that logs; Python 3.12 and later have it in every record."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else task.get_name()


def _forget_all() -> None:
    for template in list(_templates):
        template.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)

# The two lines of every run that succeeds.
_STARTED = LogTemplate(logger, logging.INFO, Reporter.started)
_SUCCEEDED = LogTemplate(logger, logging.INFO, Reporter.log_success)
