"""The strikes in force, grouped by function and by parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .instructions import Operator, Strike

ParameterStrikes = dict[str, set[tuple[Operator, Any]]]


def by_function(strikes: Iterable[Strike]) -> dict[str, ParameterStrikes]:
    """The strikes on single functions. A function that is struck completely has no parameters."""
    found: dict[str, ParameterStrikes] = {}
    for strike in strikes:
        if strike.function is not None:
            _note(found.setdefault(strike.function, {}), strike)
    return found


def by_parameter(strikes: Iterable[Strike]) -> ParameterStrikes:
    """The strikes on a parameter of every function."""
    found: ParameterStrikes = {}
    for strike in strikes:
        if strike.function is None:
            _note(found, strike)
    return found


def _note(parameters: ParameterStrikes, strike: Strike) -> None:
    if strike.parameter is None:
        return
    values = parameters.setdefault(strike.parameter, set())
    try:
        values.add((strike.operator, strike.value))
    except Exception:
        # Leave out a value that cannot be hashed, but keep the parameter.
        return
