"""The options of a worker: their defaults and their checks.

A new option is a field here, a parameter of `Worker` and of `Worker.run` (worker.py), and a field
of the command's options (cli/worker_options.py). A test compares the four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Self

from docket.execution import TaskFunction
from docket.model.times import check_durations

# A worker with more slots than this starts no more threads, unless it is asked to.
MOST_THREADS = 100


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of one worker, besides its docket. Raises ValueError if a value is not valid."""

    # The default is host#pid.
    name: str | None = None
    concurrency: int = 10
    redelivery_timeout: timedelta = timedelta(minutes=5)
    reconnection_delay: timedelta = timedelta(seconds=5)
    # Accepted for compatibility, like scheduling_resolution and message_batch. They have no effect,
    # because the worker does not poll.
    minimum_check_interval: timedelta = timedelta(milliseconds=250)
    scheduling_resolution: timedelta = timedelta(milliseconds=250)
    schedule_automatic_tasks: bool = True
    enable_internal_instrumentation: bool = False
    fallback_task: TaskFunction | None = None
    dependencies: Mapping[str, Any] | Sequence[Any] | None = None
    message_batch: int = 1000
    grace_period: timedelta = timedelta(minutes=5)
    # The default is `concurrency`, up to MOST_THREADS.
    threads: int | None = None
    # The default is the number of processors.
    cpu_processes: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency={self.concurrency}: it must be at least 1")
        for name, number in (("threads", self.threads), ("cpu_processes", self.cpu_processes)):
            if number is not None and number < 1:
                raise ValueError(f"{name}={number}: it must be at least 1")
        check_durations(
            "Worker",
            redelivery_timeout=self.redelivery_timeout,
            reconnection_delay=self.reconnection_delay,
            grace_period=self.grace_period,
        )
        if self.redelivery_timeout <= timedelta(0):
            raise ValueError(f"redelivery_timeout={self.redelivery_timeout}: it must be positive")
        if self.message_batch < 1:
            raise ValueError(f"message_batch={self.message_batch}: it must be at least 1")

    @property
    def thread_count(self) -> int:
        return min(self.concurrency, MOST_THREADS) if self.threads is None else self.threads

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are options of a worker."""
        return {field.name: arguments[field.name] for field in fields(cls)}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        return cls(**cls.among(arguments))
