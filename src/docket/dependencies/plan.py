"""What a function needs, worked out once: a task without dependencies pays nothing for them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from uncalled_for import Dependency, get_annotation_dependencies, get_dependency_parameters, get_signature
from uncalled_for import validate_dependencies as validate_declarations
from uncalled_for.introspection import (
    _parameter_cache,  # pyright: ignore[reportPrivateUsage] - clients drop entries from it after changing a signature
)

from docket.execution.arguments import positions_of

from . import contextual
from .admission import Admission
from .context import Immediate
from .perpetual import Perpetual

D = TypeVar("D", bound=Dependency[Any])


@dataclass(slots=True)
class Plan:
    """The dependencies of a function, sorted by what it takes to resolve them."""

    parameters: dict[str, Dependency[Any]]
    annotations: dict[str, list[Dependency[Any]]]
    immediate: list[tuple[str, int, Any]]
    admissions: list[tuple[str, Admission]]
    # That of the first parameter with a dependency; most calls pass nothing from there on.
    first_position: int
    is_plain: bool
    is_immediate: bool

    def single(self, kind: type[D]) -> D | None:
        """The one dependency of a kind, as declared."""
        for dependency in self.all():
            if isinstance(dependency, kind):
                return dependency
        return None

    def all(self) -> list[Dependency[Any]]:
        return [*self.parameters.values(), *(d for marks in self.annotations.values() for d in marks)]


_plans: dict[Callable[..., Any], Plan] = {}


def plan_for(function: Callable[..., Any]) -> Plan:
    """The plan of a function. Made again if a client has dropped the function's signature from the caches."""
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
    marks = [(name, d) for name, found in annotations.items() for d in found]
    admissions = [(name, d) for name, d in [*parameters.items(), *marks] if isinstance(d, Admission)]
    admissions.sort(key=lambda declared: declared[1].rank)
    first_position = min((positions[name] for name in parameters if name in positions), default=sys.maxsize)
    is_plain = not parameters and not annotations
    return Plan(parameters, annotations, immediate, admissions, first_position, is_plain, is_immediate)


def validate_dependencies(function: Callable[..., Any]) -> None:
    """Raises ValueError, naming the task, if its dependencies contradict each other."""
    name = getattr(function, "__name__", repr(function))
    _validate_defaults(function, name)
    try:
        validate_declarations(function)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    for declared, dependency in _declared(function):
        check = getattr(dependency, "validate_for", None)
        if check is not None:
            check(function, declared)
    _validate_automatic(function, name)


def _declared(function: Callable[..., Any]) -> list[tuple[str, Dependency[Any]]]:
    plan = plan_for(function)
    marks = [(name, d) for name, found in plan.annotations.items() for d in found]
    return [*plan.parameters.items(), *marks]


def _validate_defaults(function: Callable[..., Any], name: str) -> None:
    """What looks like a dependency and is none would reach the task as it stands."""
    for parameter in get_signature(function).parameters.values():
        mistake = _mistake(parameter.default)
        if mistake:
            raise ValueError(f"{name}: the default of {parameter.name!r} is {mistake}")


def _mistake(default: Any) -> str | None:
    if _is_not_called(default):
        return f"{default.__name__} itself; call it: {default.__name__}(…)"
    if str(type(cast(object, default))) == "<class 'fastapi.params.Depends'>":
        return "FastAPI's Depends, which is for its routes; a task needs `from docket import Depends`"
    if isinstance(default, Dependency) and not callable(factory := getattr(cast(Any, default), "factory", callable)):
        return f"a dependency on {factory!r}, which is no function; write Depends(function), not Depends(function())"
    return None


def _is_not_called(default: Any) -> bool:
    if isinstance(default, type):
        return issubclass(default, Dependency)
    return inspect.isfunction(default) and default.__module__ == contextual.__name__


def _validate_automatic(function: Callable[..., Any], name: str) -> None:
    """Nobody is there to pass arguments to an automatic task."""
    plan = plan_for(function)
    perpetual = plan.single(Perpetual)
    if perpetual is None or not perpetual.automatic:
        return
    for parameter in get_signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is inspect.Parameter.empty and parameter.name not in plan.parameters:
            raise ValueError(
                f"{name}: an automatic {type(perpetual).__name__} task is scheduled without arguments, "
                f"but {parameter.name!r} is required; give it a default or use automatic=False"
            )


def get_single_dependency_parameter_of_type(function: Callable[..., Any], dependency_type: type[D]) -> D | None:
    """The one dependency of a type declared on a function, or None."""
    return plan_for(function).single(dependency_type)


def get_single_dependency_of_type(dependencies: dict[str, Any], dependency_type: type[D]) -> D | None:
    """The one dependency of a type among resolved ones, or None."""
    for dependency in dependencies.values():
        if isinstance(dependency, dependency_type):
            return dependency
    return None
