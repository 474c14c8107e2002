"""Calls the function of a task with its arguments and dependencies."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from docket.dependencies import Plan, Resolved, plan_for, resolve, resolve_immediately
from docket.execution import Execution
from docket.worker.children.process_calls import call_in_child

from .own_dependencies import check_conflicts

if TYPE_CHECKING:
    from docket.worker.worker import Worker


async def call(worker: Worker, execution: Execution, resolved: Resolved) -> Any:
    """Calls a function that has dependencies and returns its result. Fills `resolved`, as far as
    the dependencies can be resolved."""
    function, worker_level = execution.function, worker.dependencies
    plan = plan_for(function)
    if plan.process is not None:
        return await call_in_child(worker, execution, resolved, plan)
    if plan.is_immediate and not worker_level and resolve_immediately(resolved, plan, execution, worker):
        return await _call_body(plan, execution, resolved)
    check_conflicts(function, plan, worker_level)
    worker.shared.enter_context()
    async with AsyncExitStack() as stack:
        await resolve(resolved, stack, plan, execution, worker_level)
        return await _call_body(plan, execution, resolved)


async def _call_body(plan: Plan, execution: Execution, resolved: Resolved) -> Any:
    args = execution.args if resolved.args is None else resolved.args
    kwargs = {**execution.kwargs, **resolved.values}
    if resolved.runtime is not None:
        return await resolved.runtime.run(execution, plan.body, args, kwargs)
    return await plan.body(*args, **kwargs)
