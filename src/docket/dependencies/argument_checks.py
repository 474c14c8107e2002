"""Checks that a call fits its task function, in the place where the call is made."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from uncalled_for import Dependency, get_signature
from uncalled_for.introspection import (
    _signature_cache,  # pyright: ignore[reportPrivateUsage] - clients drop entries from it after changing a signature
)

from .admission import Admission
from .plan import BEHAVIOURS, plan_for

Check = Callable[..., None]

# A name that no parameter has.
_REFUSAL = "_docket_check_behaviour"

_checks: dict[Callable[..., Any], tuple[inspect.Signature, Check]] = {}


def argument_check(function: Callable[..., Any]) -> Check:
    """A function that accepts the arguments of a task, and raises TypeError for arguments that the
    task function would refuse.

    It is compiled once per function, and again after a client
    has dropped the function's signature from the caches.
    """
    known = _checks.get(function)
    if known is not None and _signature_cache.get(function) is known[0]:
        return known[1]
    try:
        check = _compiled(function)
        _checks[function] = get_signature(function), check
    except (TypeError, ValueError):
        # The function has no signature to check against.
        return _accept
    return check


def _accept(*args: Any, **kwargs: Any) -> None: ...


def _compiled(function: Callable[..., Any]) -> Check:
    """A function with the same parameters and an empty body, so that Python itself checks the
    arguments and words the error.

    It uses the signature of the outermost function. A decorator may inject arguments, and
    `__wrapped__` describes only the inner function.
    """
    signature = inspect.signature(function, follow_wrapped=False)
    parameters, declared = list(signature.parameters.values()), plan_for(function).parameters
    name = getattr(function, "__name__", "task")
    try:
        check: Check = eval(
            f"lambda {_parameter_list(parameters, declared)}: {_behaviour_checks(parameters, declared)}",
            {_REFUSAL: functools.partial(_check_behaviour, name, declared)},
        )
    except SyntaxError:
        # A `__signature__` set by the user may have names that are not valid in Python.
        return _accept
    check.__name__ = check.__qualname__ = name
    return check


def _behaviour_checks(parameters: list[inspect.Parameter], declared: Mapping[str, Dependency[Any]]) -> str:
    """An expression that checks each parameter with a
    declared behaviour, or `None` if there are none."""
    behaviours = [name for name, dependency in declared.items() if isinstance(dependency, (*BEHAVIOURS, Admission))]
    expressions = {parameter.name: parameter.name for parameter in parameters}
    free = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)
    checks: list[str] = []
    for name in behaviours:
        # The wrapper of a decorator receives it in its `**kwargs`.
        expression = expressions.get(name) or (f"{free}.get({name!r})" if free else None)
        if expression is not None:
            checks.append(f"{expression} is None or {_REFUSAL}({name!r}, {expression})")
    return f"({', '.join(checks)},)" if checks else "None"


def _check_behaviour(function_name: str, declared: Mapping[str, Dependency[Any]], name: str, value: Any) -> None:
    """A caller may pass any behaviour for a declared behaviour. A limit may only replace a limit,
    because docket looks for limits only in the parameters that declare one."""
    behaviour = declared[name]
    if isinstance(value, BEHAVIOURS) or (isinstance(value, Admission) and isinstance(behaviour, Admission)):
        return
    kind = type(behaviour).__name__
    raise TypeError(
        f"{function_name}() got {reprlib.repr(value)} for '{name}', which is declared as a {kind}: "
        f"pass another behaviour, as in {name}={kind}(…), or None"
    )


def _parameter_list(parameters: list[inspect.Parameter], provided: Collection[str]) -> str:
    """The parameters as Python source. Parameters that docket provides are optional, and so are all
    positional parameters after them."""
    parts: list[str] = []
    has_default = is_keyword_only = False
    for at, parameter in enumerate(parameters):
        optional = parameter.default is not parameter.empty or parameter.name in provided
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}")
            is_keyword_only = True
        elif parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if not is_keyword_only:
                parts.append("*")
                is_keyword_only = True
            parts.append(f"{parameter.name}=None" if optional else parameter.name)
        else:
            has_default = has_default or optional
            parts.append(f"{parameter.name}=None" if has_default else parameter.name)
            following = parameters[at + 1].kind if at + 1 < len(parameters) else None
            if parameter.kind is parameter.POSITIONAL_ONLY and following is not parameter.POSITIONAL_ONLY:
                parts.append("/")
    return ", ".join(parts)
