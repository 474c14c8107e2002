"""Behaviours that a caller passes as arguments. They
replace the declared behaviours for that task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from uncalled_for import Dependency

from docket.execution.arguments import arguments_by_name

from .base import CompletionHandler, FailureHandler, Runtime

if TYPE_CHECKING:
    from docket.execution import Execution

    from .plan import Plan

BEHAVIOURS = (Runtime, FailureHandler, CompletionHandler)
_NONE: Mapping[str, Dependency[Any]] = {}

D = TypeVar("D", bound=Dependency[Any])


def passed_behaviours(plan: Plan, execution: Execution) -> Mapping[str, Dependency[Any]]:
    """The behaviours among the arguments of a call, by
    the name of their parameter. Most calls pass none."""
    if len(execution.args) <= plan.first_position and plan.parameters.keys().isdisjoint(execution.kwargs):
        return _NONE
    arguments = arguments_by_name(execution.function, execution.args, execution.kwargs)
    return {name: arguments[name] for name in plan.parameters if isinstance(arguments.get(name), BEHAVIOURS)}


def governing(plan: Plan, execution: Execution, kind: type[D]) -> D | None:
    """The dependency of a kind that applies to a task. A
    passed dependency takes precedence over a declared one."""
    arguments = arguments_by_name(execution.function, execution.args, execution.kwargs)
    counting = [*passed_behaviours(plan, execution).values()]
    counting += [declared for name, declared in plan.parameters.items() if name not in arguments]
    counting += [mark for marks in plan.annotations.values() for mark in marks]
    return next((dependency for dependency in counting if isinstance(dependency, kind)), None)
