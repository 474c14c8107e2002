"""Log lines and counters of runs, prepared once per function."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from docket.dependencies import TaskOutcome, format_duration
from docket.execution import Execution
from docket.instrumentation import (
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

logger: logging.Logger = logging.getLogger("docket.worker")
# What a task's behaviours decided, such as another run, is theirs to tell.
behaviours: logging.Logger = logging.getLogger("docket.dependencies")


@dataclass(slots=True)
class RunCounts:
    """What is to be counted once the ending is written
    down; without an outcome the task was cancelled."""

    outcome: TaskOutcome | None
    retried: bool = False
    perpetuated: bool = False
    # Counted instead if the run no longer counts: the part of the task that gave way.
    where: str = "worker"


CANCELLED = RunCounts(None)
# Of all runs that nothing is left of and nothing follows.
SUCCEEDED = RunCounts(TaskOutcome(timedelta(0)))


@dataclass(slots=True)
class Reporter:
    """Tells the world what happens to runs."""

    labels: dict[str, str]
    by_function: dict[str, dict[str, str]]

    def attributes(self, execution: Execution) -> dict[str, str]:
        name = execution.function_name
        found = self.by_function.get(name)
        if found is None:
            found = self.by_function[name] = {**self.labels, "docket.task": name}
        return found

    def _extra(self, execution: Execution) -> dict[str, Any]:
        return {**self.labels, **execution.specific_labels()}

    def _ending_extra(self, execution: Execution, seconds: float) -> dict[str, Any]:
        extra = {**self._extra(execution), "duration": seconds}
        if execution.started_at is not None:
            extra["punctuality"] = (execution.started_at - execution.when).total_seconds()
        return extra

    def started(self, execution: Execution) -> None:
        is_logged = logger.isEnabledFor(logging.INFO)
        if not is_logged and not is_measured():
            return
        assert execution.started_at is not None
        attributes = self.attributes(execution)
        late = (execution.started_at - execution.when).total_seconds()
        TASKS_STARTED.add(1, attributes)
        TASKS_RUNNING.add(1, attributes)
        TASK_PUNCTUALITY.record(max(late, 0.0), attributes)
        if execution.redelivered:
            TASKS_REDELIVERED.add(1, attributes)
        if is_logged:
            arrow = "↬" if execution.attempt > 1 else "↪"
            logger.info(
                "%s [%s] %s%s",
                arrow,
                format_duration(late),
                execution.call_repr(),
                " (redelivered)" if execution.redelivered else "",
                extra={**self._extra(execution), "punctuality": late},
            )

    def over(self, execution: Execution, seconds: float) -> None:
        """The body or the admission has ended, one way
        or another: started − completed = running."""
        if not is_measured():
            return
        attributes = self.attributes(execution)
        TASKS_RUNNING.add(-1, attributes)
        TASKS_COMPLETED.add(1, attributes)
        TASK_DURATION.record(seconds, attributes)

    def count(self, execution: Execution, counts: RunCounts) -> None:
        """An ending that is written down."""
        if not is_measured():
            return
        attributes = self.attributes(execution)
        outcome = counts.outcome
        if outcome is None:
            TASKS_CANCELLED.add(1, attributes)
            return
        (TASKS_SUCCEEDED if outcome.exception is None else TASKS_FAILED).add(1, attributes)
        if counts.retried:
            TASKS_RETRIED.add(1, attributes)
        elif counts.perpetuated:
            TASKS_PERPETUATED.add(1, attributes)

    def log_success(self, execution: Execution, seconds: float) -> None:
        """The same as `log_end` for a run that ended well and that nothing follows."""
        if logger.isEnabledFor(logging.INFO):
            self.log_end(execution, TaskOutcome(timedelta(seconds=seconds)), again=False)

    def log_end(self, execution: Execution, outcome: TaskOutcome, again: bool) -> None:
        """A failure is the worker's to tell, with its traceback;
        that the task comes again, its behaviours'."""
        if outcome.exception is not None:
            self._log_end(logger, logging.ERROR, "↩", execution, outcome)
        if again:
            self._log_end(behaviours, logging.INFO, "↫", execution, outcome)
        elif outcome.exception is None:
            self._log_end(logger, logging.INFO, "↩", execution, outcome)

    def _log_end(
        self, teller: logging.Logger, level: int, arrow: str, execution: Execution, outcome: TaskOutcome
    ) -> None:
        if not teller.isEnabledFor(level):
            return
        teller.log(
            level,
            "%s [%s] %s",
            arrow,
            format_duration(outcome.duration.total_seconds()),
            execution.call_repr(),
            exc_info=outcome.exception if level == logging.ERROR else None,
            extra=self._ending_extra(execution, outcome.duration.total_seconds()),
        )

    def cancelled(self, execution: Execution, seconds: float) -> None:
        logger.info(
            "✗ [%s] %s (cancelled)",
            format_duration(seconds),
            execution.call_repr(),
            extra=self._ending_extra(execution, seconds),
        )

    def never_began(self) -> None:
        """A task was cancelled after the worker had claimed it, and before its run began."""
        TASKS_CANCELLED.add(1, self.labels)

    def struck(self, execution: Execution) -> None:
        TASKS_STRICKEN.add(1, {**self.attributes(execution), "docket.where": "worker"})
        logger.warning("🗙 %s", execution.call_repr(), extra=self._extra(execution))

    def blocked(self, execution: Execution, reason: str, what_next: str) -> None:
        logger.info("⧗ %s blocked by %s; %s", execution.call_repr(), reason, what_next, extra=self._extra(execution))

    def superseded(self, execution: Execution, where: str = "worker") -> None:
        TASKS_SUPERSEDED.add(1, {**self.attributes(execution), "docket.where": where})
        logger.info(
            "↬ %s was replaced or taken over; this run changed nothing",
            execution.call_repr(),
            extra=self._extra(execution),
        )
