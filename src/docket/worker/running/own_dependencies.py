"""Dependencies of the worker itself, and their conflicts with the dependencies of a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uncalled_for import Dependency

from docket.dependencies import Plan
from docket.execution.display import display_name


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


def check_conflicts(function: Callable[..., Any], plan: Plan, worker_level: Mapping[str, Dependency[Any]]) -> None:
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
