"""Calls the function of a task: resolves its dependencies and those of the worker, then runs the
body here or in a child process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from uncalled_for import Dependency

from docket.dependencies import Plan, Resolved, plan_for, resolve, resolve_immediately
from docket.execution import Execution
from docket.execution.arguments import display_name
from docket.worker.children.process_calls import call_in_child

if TYPE_CHECKING:
    from docket.worker.worker import Worker


# twin of: plain tasks (runner.py)
async def call(worker: Worker, execution: Execution, resolved: Resolved) -> Any:
    """Calls a function that has dependencies and returns its result. Fills `resolved`, as far as
    the dependencies can be resolved. A child resolves those of its function itself, but for limits
    and behaviours."""
    function, worker_level = execution.function, worker.dependencies
    plan = plan_for(function)
    here = plan if plan.in_worker is None else plan.in_worker
    if here.is_immediate and not worker_level and resolve_immediately(resolved, here, execution, worker):
        return await _call_body(worker, plan, execution, resolved)
    _check_conflicts(function, plan, worker_level)
    worker.shared.enter_context()
    async with AsyncExitStack() as stack:
        await resolve(resolved, stack, here, execution, worker_level)
        return await _call_body(worker, plan, execution, resolved)


async def _call_body(worker: Worker, plan: Plan, execution: Execution, resolved: Resolved) -> Any:
    if plan.process is not None:
        return await call_in_child(worker, execution, resolved, plan)
    args = execution.args if resolved.args is None else resolved.args
    kwargs = {**execution.kwargs, **resolved.values}
    if resolved.runtime is not None:
        return await resolved.runtime.run(execution, plan.body, args, kwargs)
    return await plan.body(*args, **kwargs)


def worker_dependencies(given: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Dependency[Any]]:
    """The worker's dependencies by name. Unnamed dependencies get reserved names. An empty string
    means no dependencies."""
    if not given:
        return {}
    if isinstance(given, Mapping):
        named = dict(given)
        for name in named:
            if name.startswith("__"):
                raise ValueError(f"worker dependency {name!r}: names that begin with __ are reserved")
    else:
        named = {f"__worker_dependency_{i}": dependency for i, dependency in enumerate(given)}
    for name, dependency in named.items():
        if inspect.isclass(dependency) or not isinstance(dependency, Dependency):
            raise TypeError(
                f"worker dependency {name!r} is {dependency!r}, which is not a dependency; use Depends(…) or an instance"
            )
    return named


def _check_conflicts(function: Callable[..., Any], plan: Plan, worker_level: Mapping[str, Dependency[Any]]) -> None:
    """Raises ValueError if the worker and the task both
    declare a dependency of a kind that is allowed once."""
    for name, dependency in worker_level.items():
        for kind in _single_kinds(dependency):
            for parameter, other in plan.declared():
                if isinstance(other, kind):
                    raise ValueError(
                        f"only one {kind.__name__} is allowed: the worker has {type(dependency).__name__} ({name!r}) and the task "
                        f"{display_name(function)} has {type(other).__name__} ({parameter!r})"
                    )


def _single_kinds(dependency: Dependency[Any]) -> list[type[Any]]:
    kinds: tuple[Any, ...] = type(dependency).__mro__
    return [kind for kind in kinds if kind is not Dependency and getattr(kind, "single", False)]
