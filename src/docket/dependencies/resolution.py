"""Resolves the dependencies of a run, and keeps the values that live as long as the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from uncalled_for import Dependency, FailedDependency, Frame, SharedContext, frame_scope
from uncalled_for.functional import (
    _Depends,  # pyright: ignore[reportPrivateUsage] - it holds the cache and the exit stack of a resolution
)

from docket.execution import Execution
from docket.execution.arguments import arguments_by_name, positions_of
from docket.execution.context import WorkerContext, current_worker

from .admission import Admission, call_arguments
from .base import AdmissionBlocked, CompletionHandler, FailureHandler, Immediate, Runtime
from .plan import Plan, passed_behaviours


@dataclass(slots=True)
class Resolved:
    """The values for the function's parameters, and the behaviours among them."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    # The positional arguments of the call, set only if they contain a behaviour.
    args: tuple[Any, ...] | None = None
    runtime: Runtime[Any] | None = None
    failure_handler: FailureHandler[Any] | None = None
    completion_handler: CompletionHandler[Any] | None = None

    @property
    def has_handlers(self) -> bool:
        """Whether there is something to ask when the run is over."""
        return self.failure_handler is not None or self.completion_handler is not None

    def note(self, dependency: Any) -> None:
        if isinstance(dependency, Runtime):
            self.runtime = dependency
        if isinstance(dependency, FailureHandler):
            self.failure_handler = dependency
        if isinstance(dependency, CompletionHandler):
            self.completion_handler = dependency

    def replace(self, name: str, value: Any, execution: Execution) -> None:
        """Replaces a behaviour that the caller passed, by keyword
        or by position, with the value that the body gets."""
        self.note(value)
        position = positions_of(execution.function).get(name)
        if position is None or position >= len(execution.args):
            self.values[name] = value
        else:
            args = list(self.args or execution.args)
            args[position] = value
            self.args = tuple(args)


# twin of: resolve (resolution.py)
def resolve_immediately(resolved: Resolved, plan: Plan, execution: Execution, worker: WorkerContext) -> bool:
    """Fills in the dependencies that need no context manager and no cache.

    Returns False if the caller passed a behaviour that needs a context manager.
    """
    given = len(execution.args)
    for name, position, dependency in plan.immediate:
        if position >= given and name not in execution.kwargs:
            value = resolved.values[name] = dependency.provide(execution, worker)
            resolved.note(value)
    is_complete = True
    for name, behaviour in passed_behaviours(plan, execution).items():
        if isinstance(behaviour, Immediate):
            resolved.replace(name, behaviour.provide(execution, worker), execution)
        else:
            is_complete = False
    return is_complete


# twin of: resolve_immediately (resolution.py)
async def resolve(
    resolved: Resolved,
    stack: AsyncExitStack,
    plan: Plan,
    execution: Execution,
    worker_level: Mapping[str, Dependency[Any]],
) -> None:
    """Enters all dependencies of the run on the stack: the worker's dependencies, then the limits,
    then the task's other dependencies.

    If a dependency fails, `resolved` keeps the values so far, because the task's retry applies to
    such a failure too. Raises AdmissionBlocked unchanged, and for any other failure an
    ExceptionGroup that names the parameters.
    """
    failures: dict[str, Exception] = {}
    function = execution.function
    _Depends.cache.set({})
    _Depends.stack.set(stack)
    await _enter_worker_level(stack, worker_level, resolved, failures)
    provided = _provided(function, execution)
    with frame_scope(function, provided) as frame:
        if plan.admissions and not failures:
            await _enter_admissions(stack, plan, frame, execution, resolved, failures)
        if failures:
            # The task's own Retry applies to this failure too, so it must be resolved.
            resolve_immediately(resolved, plan, execution, current_worker.get())
        else:
            await _enter_passed(stack, plan, frame, execution, resolved, failures)
            await _enter_parameters(plan, frame, resolved, failures)
        if plan.annotations and not failures:
            await _enter_annotations(stack, plan, {**call_arguments(execution), **resolved.values}, resolved, failures)
    if failures:
        raise ExceptionGroup(
            f"Failed to resolve dependencies for parameter(s): {', '.join(failures)}", list(failures.values())
        )


async def _enter_worker_level(
    stack: AsyncExitStack,
    worker_level: Mapping[str, Dependency[Any]],
    resolved: Resolved,
    failures: dict[str, Exception],
) -> None:
    for name, dependency in worker_level.items():
        try:
            resolved.note(await stack.enter_async_context(dependency.for_parameter(name)))
        except AdmissionBlocked:
            raise
        except Exception as error:
            failures[name] = error
            return


async def _enter_admissions(
    stack: AsyncExitStack,
    plan: Plan,
    frame: Frame,
    execution: Execution,
    resolved: Resolved,
    failures: dict[str, Exception],
) -> None:
    """Asks the limits first, so that a task that has to wait opens no resources."""
    arguments = call_arguments(execution)
    for name, admission in plan.admissions:
        try:
            if plan.parameters.get(name) is not admission:
                await stack.enter_async_context(admission.bind_to_parameter(name, arguments.get(name)))
            elif name not in frame.provided:
                resolved.values[name] = await frame.resolve(name)
            elif isinstance(passed := frame.provided[name], Admission):
                entered = await stack.enter_async_context(passed.for_parameter(name))
                resolved.replace(name, entered, execution)
        except AdmissionBlocked:
            raise
        except Exception as error:
            failures[name] = error
            return


async def _enter_passed(
    stack: AsyncExitStack,
    plan: Plan,
    frame: Frame,
    execution: Execution,
    resolved: Resolved,
    failures: dict[str, Exception],
) -> None:
    """Enters the behaviours that the caller passed. Other
    dependencies and the body both get them bound to this run."""
    passed = passed_behaviours(plan, execution)
    if passed:
        frame.provided = dict(frame.provided)
    for name, behaviour in passed.items():
        try:
            value = await stack.enter_async_context(behaviour.for_parameter(name))
        except AdmissionBlocked:
            raise
        except Exception as error:
            failures[name] = error
        else:
            frame.provided[name] = value
            resolved.replace(name, value, execution)


async def _enter_parameters(plan: Plan, frame: Frame, resolved: Resolved, failures: dict[str, Exception]) -> None:
    for name in plan.parameters:
        if name in frame.provided or name in resolved.values:
            continue
        try:
            value = resolved.values[name] = await frame.resolve(name)
            resolved.note(value)
        except AdmissionBlocked:
            raise
        except Exception as error:
            failures[name] = error


async def _enter_annotations(
    stack: AsyncExitStack,
    plan: Plan,
    values: dict[str, Any],
    resolved: Resolved,
    failures: dict[str, Exception],
) -> None:
    for name, dependencies in plan.annotations.items():
        for dependency in dependencies:
            if isinstance(dependency, Admission):
                continue
            try:
                bound = dependency.bind_to_parameter(name, values.get(name))
                resolved.note(await stack.enter_async_context(bound))
            except AdmissionBlocked:
                raise
            except Exception as error:
                failures[name] = error


def _provided(function: Callable[..., Any], execution: Execution) -> dict[str, Any]:
    """The caller's arguments by name. Arguments that do not fit the signature cause an error later,
    when the function is called."""
    return arguments_by_name(function, execution.args, execution.kwargs) if execution.args else execution.kwargs


__all__ = ["FailedDependency", "Resolved", "resolve", "resolve_immediately"]


class SharedValues:
    """The scope of `Shared` dependencies. A worker has one scope, which all its runs see, whatever
    context they start in."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._resolved: dict[Any, Any] = {}

    def enter_context(self) -> None:
        """Makes the scope visible in the context of the current run."""
        SharedContext.stack.set(self._stack)
        SharedContext.lock.set(self._lock)
        SharedContext.resolved.set(self._resolved)

    def variables(self) -> list[tuple[ContextVar[Any], Any]]:
        """The context variables of the scope and their values, for `BlockContext` to set."""
        return [
            (SharedContext.stack, self._stack),
            (SharedContext.lock, self._lock),
            (SharedContext.resolved, self._resolved),
        ]

    async def aclose(self) -> None:
        self._resolved.clear()
        await self._stack.aclose()
