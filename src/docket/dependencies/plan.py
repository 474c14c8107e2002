"""The dependencies of a function, computed once, so that a task without dependencies has no cost
for them, and the behaviours that a caller passes in their place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from uncalled_for import Dependency, get_annotation_dependencies, get_dependency_parameters
from uncalled_for.introspection import (
    _parameter_cache,  # pyright: ignore[reportPrivateUsage] - clients drop entries from it after changing a signature
)

from docket.execution import Execution
from docket.execution.arguments import arguments_by_name, positions_of
from docket.execution.functions import runtime_for
from docket.execution.task_call import TaskFunction

from .admission import Admission
from .base import CompletionHandler, FailureHandler, Immediate, Runtime
from .process import Process

BEHAVIOURS = (Runtime, FailureHandler, CompletionHandler)
_NONE: Mapping[str, Dependency[Any]] = {}

D = TypeVar("D", bound=Dependency[Any])


@dataclass(slots=True)
class Plan:
    """The dependencies of a function, grouped by the way in which they are resolved."""

    parameters: dict[str, Dependency[Any]]
    annotations: dict[str, list[Dependency[Any]]]
    immediate: list[tuple[str, int, Any]]
    admissions: list[tuple[str, Admission]]
    # The position of the first parameter with a dependency.
    # Most calls pass fewer positional arguments than this.
    first_position: int
    is_plain: bool
    is_immediate: bool
    # Every call of the function goes through this: the function as its runtime calls it.
    body: TaskFunction
    # Set for a function that runs in a child: its Process, and its behaviours and limits, which
    # stay in the worker. The child resolves its other dependencies.
    process: Process | None = None
    in_worker: Plan | None = None

    def single(self, kind: type[D]) -> D | None:
        """The declared dependency of a kind, or None."""
        for dependency in self.all():
            if isinstance(dependency, kind):
                return dependency
        return None

    def all(self) -> list[Dependency[Any]]:
        return [dependency for _, dependency in self.declared()]

    def declared(self) -> list[tuple[str, Dependency[Any]]]:
        """Every dependency with its parameter: those in defaults, then those in annotations."""
        return [*self.parameters.items(), *self.annotated()]

    def annotated(self) -> list[tuple[str, Dependency[Any]]]:
        """The dependencies in annotations, each with its parameter."""
        return [(name, dependency) for name, found in self.annotations.items() for dependency in found]


_plans: dict[Callable[..., Any], Plan] = {}


def plan_for(function: Callable[..., Any]) -> Plan:
    """The plan of a function. It is computed again after a client has dropped the function's
    signature from the caches."""
    plan = _plans.get(function)
    if plan is not None and _parameter_cache.get(function) is plan.parameters:
        return plan
    plan = _plans[function] = _make_plan(function)
    return plan


def plan_count() -> int:
    return len(_plans)


def _make_plan(function: Callable[..., Any]) -> Plan:
    parameters = cast(dict[str, Dependency[Any]], get_dependency_parameters(function))
    annotations = cast(dict[str, list[Dependency[Any]]], get_annotation_dependencies(function))
    positions = positions_of(function)
    immediate = [(n, positions.get(n, sys.maxsize), d) for n, d in parameters.items() if isinstance(d, Immediate)]
    is_immediate = not annotations and len(immediate) == len(parameters)
    first_position = min((positions[name] for name in parameters if name in positions), default=sys.maxsize)
    is_plain = not parameters and not annotations
    body = runtime_for(function).bind(function)
    plan = Plan(parameters, annotations, immediate, [], first_position, is_plain, is_immediate, body)
    plan.admissions += [(name, d) for name, d in plan.declared() if isinstance(d, Admission)]
    plan.admissions.sort(key=lambda declared: declared[1].rank)
    plan.process = plan.single(Process)
    if plan.process is not None:
        plan.in_worker = _only(plan, lambda d: isinstance(d, (*BEHAVIOURS, Admission)))
    return plan


def in_child(plan: Plan) -> Plan:
    """The dependencies that a child resolves: all but the limits, which the worker has asked."""
    return _only(plan, lambda d: not isinstance(d, Admission))


def _only(plan: Plan, is_included: Callable[[Dependency[Any]], bool]) -> Plan:
    """The plan with some of its dependencies."""
    parameters = {name: d for name, d in plan.parameters.items() if is_included(d)}
    annotations = {name: [d for d in found if is_included(d)] for name, found in plan.annotations.items()}
    annotations = {name: found for name, found in annotations.items() if found}
    immediate = [entry for entry in plan.immediate if entry[0] in parameters]
    return replace(
        plan,
        parameters=parameters,
        annotations=annotations,
        immediate=immediate,
        admissions=[(name, d) for name, d in plan.admissions if is_included(d)],
        is_plain=not parameters and not annotations,
        is_immediate=not annotations and len(immediate) == len(parameters),
    )


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


def get_single_dependency_parameter_of_type(function: Callable[..., Any], dependency_type: type[D]) -> D | None:
    """The dependency of a type that a function declares, or None."""
    return plan_for(function).single(dependency_type)


def get_single_dependency_of_type(dependencies: dict[str, Any], dependency_type: type[D]) -> D | None:
    """The dependency of a type among the resolved dependencies, or None."""
    for dependency in dependencies.values():
        if isinstance(dependency, dependency_type):
            return dependency
    return None
