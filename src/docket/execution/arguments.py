"""Matches the arguments of a call with the parameters of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from uncalled_for import get_signature

_ONE_EACH = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arguments_by_name(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name. Those for `*args` are one tuple. Arguments without
    a parameter are left out; the call of the function will raise the error."""
    if not args:
        return dict(kwargs)
    parameters = get_signature(function).parameters.values()
    positions = positions_of(function)
    named = dict(zip(positions, args, strict=False))
    variadic = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    if variadic is not None and len(args) > len(positions):
        named[variadic] = args[len(positions) :]
    return {**named, **kwargs}


def positions_of(function: Callable[..., Any]) -> dict[str, int]:
    """The parameters that take one positional argument each, in order."""
    parameters = get_signature(function).parameters.values()
    names = (parameter.name for parameter in parameters if parameter.kind in _ONE_EACH)
    return {name: position for position, name in enumerate(names)}
