"""Retries: how often and when a failed task runs again."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from docket.errors import DocketError
from docket.execution import Execution
from docket.execution.context import WorkerContext, current_execution
from docket.model.times import check_durations

from .base import FailureHandler, TaskOutcome

if TYPE_CHECKING:
    from typing import Self


ExceptionTypes = tuple[type[BaseException], ...]


class ForcedRetry(DocketError):
    """Raised by `retry.after` and `retry.at` to end this
    run and schedule another one, if an attempt is left."""


class Retry(FailureHandler[Any]):
    """Runs a failed task again after `delay`, up to `attempts` runs in total (None means no limit).

    `jitter` varies each delay at random by up to that share of it, between 0 and 1. If `on` is
    given, only those exceptions are retried. Exceptions in `never` are not retried.
    """

    def __init__(
        self,
        attempts: int | None = 1,
        delay: timedelta = timedelta(0),
        *,
        jitter: float = 0.0,
        on: ExceptionTypes | type[BaseException] | None = None,
        never: ExceptionTypes | type[BaseException] = (),
    ) -> None:
        if attempts is not None and attempts < 1:
            raise ValueError(f"Retry(attempts={attempts}): it must be at least 1; None means no limit")
        check_durations("Retry", delay=delay)
        if delay < timedelta(0):
            raise ValueError(f"Retry(delay={delay}): a delay cannot be negative")
        if not 0 <= jitter <= 1:
            raise ValueError(f"Retry(jitter={jitter}): it must be a share of the delay, from 0 to 1")
        self.attempts = attempts
        self.delay: timedelta = delay
        self.jitter = jitter
        self.on: tuple[type[BaseException], ...] | None = (on,) if isinstance(on, type) else on
        self.never: tuple[type[BaseException], ...] = (never,) if isinstance(never, type) else never
        self.attempt = 1
        self._when: datetime | None = None

    @classmethod
    def forever(cls, delay: timedelta = timedelta(0)) -> Self:
        """Retries without a last attempt."""
        return cls(attempts=None, delay=delay)

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """A copy that knows the number of the attempt."""
        bound = self._copy()
        bound.attempt = execution.attempt
        return bound

    async def __aenter__(self) -> Self:
        bound = self._copy()
        bound.attempt = current_execution.get().attempt
        return bound

    def _copy(self) -> Self:
        bound = object.__new__(type(self))
        vars(bound).update(vars(self))
        return bound

    def after(self, delay: timedelta) -> NoReturn:
        """Ends this run by raising ForcedRetry. The task
        runs again after the delay, if an attempt is left."""
        self.delay = delay
        raise ForcedRetry(f"retry in {delay}")

    def at(self, when: datetime) -> NoReturn:
        """Ends this run by raising ForcedRetry. The task
        runs again at that time, if an attempt is left."""
        self._when = when
        raise ForcedRetry(f"retry at {when}")

    in_ = after

    def delay_after(self, attempt: int) -> timedelta:
        """The delay after the given attempt failed."""
        return self.delay

    def is_worth_it(self, error: BaseException | None) -> bool:
        """Whether `on` and `never` permit a retry after this error."""
        if error is None or isinstance(error, self.never):
            return False
        return self.on is None or isinstance(error, self.on)

    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
        if self.attempts is not None and execution.attempt >= self.attempts:
            return False
        if isinstance(outcome.exception, ForcedRetry):
            delay = None if self._when is not None else self.delay
        elif self.is_worth_it(outcome.exception):
            delay = self.delay_after(execution.attempt)
            delay += delay * random.uniform(-self.jitter, self.jitter)
        else:
            return False
        execution.run_again(attempt=execution.attempt + 1, delay=delay, when=self._when if delay is None else None)
        return True


class ExponentialRetry(Retry):
    """A retry whose delay doubles from `minimum_delay` up to `maximum_delay`."""

    def __init__(
        self,
        attempts: int | None = 1,
        minimum_delay: timedelta = timedelta(seconds=1),
        maximum_delay: timedelta = timedelta(seconds=64),
        *,
        jitter: float = 0.0,
        on: ExceptionTypes | type[BaseException] | None = None,
        never: ExceptionTypes | type[BaseException] = (),
    ) -> None:
        check_durations("ExponentialRetry", minimum_delay=minimum_delay, maximum_delay=maximum_delay)
        super().__init__(attempts, minimum_delay, jitter=jitter, on=on, never=never)
        if maximum_delay < timedelta(0):
            raise ValueError(f"ExponentialRetry(maximum_delay={maximum_delay}): a delay cannot be negative")
        self.minimum_delay = minimum_delay
        self.maximum_delay = maximum_delay

    @classmethod
    def forever(cls, delay: timedelta = timedelta(seconds=1), maximum_delay: timedelta = timedelta(seconds=64)) -> Self:
        """Retries without a last attempt; the delay doubles up to `maximum_delay`."""
        return cls(attempts=None, minimum_delay=delay, maximum_delay=maximum_delay)

    def delay_after(self, attempt: int) -> timedelta:
        if self.minimum_delay <= timedelta(0):
            return self.minimum_delay
        # Stop doubling at the maximum: 2**attempt overflows a timedelta after a few dozen attempts.
        doublings = min(attempt - 1, (self.maximum_delay // self.minimum_delay).bit_length())
        return min(self.minimum_delay * 2**doublings, self.maximum_delay)
