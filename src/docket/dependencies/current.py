"""Dependencies that give a task its context: docket,
worker, execution, key, arguments, logger and progress."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, cast

from uncalled_for import CallArgument, Dependency
from uncalled_for.frames import _CallArgument  # pyright: ignore[reportPrivateUsage] - the class that _TaskArgument extends

from docket.execution import Execution
from docket.execution.arguments import arguments_by_name
from docket.execution.context import WorkerContext, current_docket, current_execution, current_worker
from docket.execution.progress import ExecutionProgress

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.worker import Worker


class _CurrentDocket(Dependency[Any]):
    def provide(self, execution: Execution, worker: WorkerContext) -> Any:
        return execution.docket

    async def __aenter__(self) -> Any:
        return current_docket.get()


def CurrentDocket() -> Docket:
    """The docket that holds the task."""
    return cast("Docket", _CurrentDocket())


class _CurrentWorker(Dependency[Any]):
    def provide(self, execution: Execution, worker: WorkerContext) -> Any:
        return worker

    async def __aenter__(self) -> Any:
        return current_worker.get()


def is_current_worker(dependency: object) -> bool:
    return isinstance(dependency, _CurrentWorker)


def needs_docket(dependency: object) -> bool:
    """Whether the value of the dependency is a docket, or refers to one."""
    return isinstance(dependency, _CurrentDocket | _CurrentExecution)


def CurrentWorker() -> Worker:
    """The worker that runs the task."""
    return cast("Worker", _CurrentWorker())


class _CurrentExecution(Dependency[Any]):
    def provide(self, execution: Execution, worker: WorkerContext) -> Any:
        return execution

    async def __aenter__(self) -> Any:
        return current_execution.get()


def CurrentExecution() -> Execution:
    """The task's own execution."""
    return cast("Execution", _CurrentExecution())


class _TaskKey(Dependency[str]):
    def provide(self, execution: Execution, worker: WorkerContext) -> str:
        return execution.key

    async def __aenter__(self) -> str:
        return current_execution.get().key


def TaskKey() -> str:
    """The task's key."""
    return cast(str, _TaskKey())


class _TaskArgument(_CallArgument):
    """An argument that the task was scheduled with. Values
    that other dependencies provide do not count."""

    async def __aenter__(self) -> Any:
        if self.parameter is None:
            raise RuntimeError("TaskArgument() without a name must be the default of a parameter")
        execution = current_execution.get()
        try:
            return arguments_by_name(execution.function, execution.args, execution.kwargs)[self.parameter]
        except KeyError:
            if self.optional:
                return None
            raise KeyError(f"{execution.function_name} was scheduled without an argument {self.parameter!r}") from None


def TaskArgument(parameter: str | None = None, optional: bool = False, *, name: str | None = None) -> Any:
    """An argument of the task, for use in its dependencies.
    Inside a dependency the name defaults to the parameter's."""
    return _TaskArgument(name if parameter is None else parameter, optional)


class _LabelledLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's labels to every log record, in addition to the caller's `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class _TaskLogger(Dependency[Any]):
    def provide(self, execution: Execution, worker: WorkerContext) -> logging.LoggerAdapter[logging.Logger]:
        logger = logging.getLogger(f"docket.task.{execution.function_name}")
        return _LabelledLogger(logger, {**execution.docket.labels(), **worker.labels(), **execution.specific_labels()})

    async def __aenter__(self) -> logging.LoggerAdapter[logging.Logger]:
        return self.provide(current_execution.get(), current_worker.get())


def TaskLogger() -> logging.LoggerAdapter[logging.Logger]:
    """A logger that is named after the task function
    and adds the task's labels to each log record."""
    return cast("logging.LoggerAdapter[logging.Logger]", _TaskLogger())


class Progress(ExecutionProgress, Dependency[Any]):
    """The progress of the task, which the body updates. It is
    a class, so that a parameter can be annotated with it."""

    def __init__(self) -> None:
        """The declared object belongs to no task. Each run gets its own progress."""

    def provide(self, execution: Execution, worker: WorkerContext) -> ExecutionProgress:
        """The progress of this run."""
        return execution.progress

    async def __aenter__(self) -> ExecutionProgress:
        return current_execution.get().progress


__all__ = [
    "CallArgument",
    "CurrentDocket",
    "CurrentExecution",
    "CurrentWorker",
    "Progress",
    "TaskArgument",
    "TaskKey",
    "TaskLogger",
]
