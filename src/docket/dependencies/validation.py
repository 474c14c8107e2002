"""Finds mistakes in the dependencies of a function when the function is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from uncalled_for import Dependency, get_signature
from uncalled_for import validate_dependencies as validate_declarations

from docket.execution.display import display_name

from . import current
from .perpetual import Perpetual
from .plan import plan_for


def validate_dependencies(function: Callable[..., Any]) -> None:
    """Raises a ValueError that names the task if its
    dependencies are wrong or contradict each other."""
    name = display_name(function)
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
    """Refuses defaults that look like dependencies but
    are not. The body would get them unresolved."""
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
        return f"a dependency on {factory!r}, which is not a function; write Depends(function), not Depends(function())"
    return None


def _is_not_called(default: Any) -> bool:
    if isinstance(default, type):
        return issubclass(default, Dependency)
    return inspect.isfunction(default) and default.__module__ == current.__name__


def _validate_automatic(function: Callable[..., Any], name: str) -> None:
    """Refuses required parameters: docket schedules an automatic task without arguments."""
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
