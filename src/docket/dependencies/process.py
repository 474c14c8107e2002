"""A function that runs in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from uncalled_for import Dependency, get_dependency_parameters

from docket.execution import Execution
from docket.execution.arguments import display_name
from docket.execution.context import WorkerContext
from docket.model.amounts import MIB, read_size, show_size

from .current import is_current_worker

if TYPE_CHECKING:
    from typing import Self


# Python with docket takes about half of this before the function begins.
LEAST_MEMORY = 64 * MIB
# A child that holds more than this share of its memory after a run is replaced, because the next
# run needs room, too.
SOFT_SHARE = 0.75


class Process(Dependency[Any]):
    """Runs the task in a child process of the worker, which runs one task at a time. A time-out or
    a cancel ends the child: SIGTERM, and SIGKILL two seconds later. A child that dies fails this
    run with ProcessLost.

    `memory` limits the memory that the function may use ("512MiB", or a number of bytes): beyond
    it, Python raises MemoryError. The worker replaces the child after `recycle` runs, and after a
    run that leaves it with more than three quarters of `memory`.
    """

    single = True

    def __init__(self, memory: str | int | None = None, recycle: int = 10_000) -> None:
        self.memory: int | None = None if memory is None else read_size(memory)
        if self.memory is not None and self.memory < LEAST_MEMORY:
            raise ValueError(f"Process(memory={memory!r}): Python itself needs more; give {show_size(LEAST_MEMORY)}")
        if recycle < 1:
            raise ValueError(f"Process(recycle={recycle}): it must be at least 1")
        self.recycle = recycle

    def __repr__(self) -> str:
        return f"Process(memory={self.memory}, recycle={self.recycle})"

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """Itself: it has no state of a run."""
        return self

    async def __aenter__(self) -> Self:
        return self

    def is_worn_out(self, runs: int, memory: int) -> bool:
        """Whether a child that has had this many runs, and holds this many bytes, is replaced."""
        return runs >= self.recycle or holds_too_much(memory, self.memory)

    def validate_for(self, function: Callable[..., Any], parameter: str) -> None:
        """Raises ValueError if a child cannot find the function, or cannot provide what it asks
        for."""
        name = display_name(function)
        if os.name == "nt":
            raise ValueError(f"{name}: Process is not available on Windows")
        problem = _cannot_be_found(function)
        if problem is not None:
            raise ValueError(
                f"{name}: a child process cannot find {problem}; with Process, a task is a function of a module "
                "that can be imported"
            )
        wanted = _wants_worker(function, set())
        if wanted is not None:
            raise ValueError(
                f"{name}: {wanted!r} is CurrentWorker(), which is in another process; with Process, use CurrentDocket()"
            )


def holds_too_much(memory: int, cap: int | None) -> bool:
    """Whether a child that holds so much memory after a run is replaced."""
    return cap is not None and memory > cap * SOFT_SHARE


def _cannot_be_found(function: Callable[..., Any]) -> str | None:
    """Why a child cannot import the function by its name, or None."""
    if not isinstance(function, FunctionType):
        return "methods, partials and other objects that are not functions"
    if function.__name__ == "<lambda>":
        return "a lambda"
    if function.__module__ == "__main__":
        return "functions of the main program"
    if "<locals>" in function.__qualname__:
        return "a function inside a function"
    module = sys.modules.get(function.__module__)
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        # The module is still being imported, so its names are not complete.
        return None
    found: Any = module
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not function:
        return f"it as {function.__module__}.{function.__qualname__}, which is something else"
    return None


def _wants_worker(function: Callable[..., Any], seen: set[Any]) -> str | None:
    """The parameter of the function, or of one of its dependencies, that asks for the worker."""
    for name, dependency in get_dependency_parameters(function).items():
        if is_current_worker(dependency):
            return name
        factory = getattr(dependency, "factory", None)
        if callable(factory) and factory not in seen:
            seen.add(factory)
            found = _wants_worker(factory, seen)
            if found is not None:
                return found
    return None
