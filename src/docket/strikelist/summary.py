"""The strikes in force, arranged for a reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .instructions import Operator, Strike

ParameterStrikes = dict[str, set[tuple[Operator, Any]]]


def by_function(strikes: Iterable[Strike]) -> dict[str, ParameterStrikes]:
    """Strikes on one function each; one that is struck as a whole has no parameters."""
    found: dict[str, ParameterStrikes] = {}
    for strike in strikes:
        if strike.function is not None:
            _note(found.setdefault(strike.function, {}), strike)
    return found


def by_parameter(strikes: Iterable[Strike]) -> ParameterStrikes:
    """Strikes on a parameter of every function."""
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
        # A value that cannot be hashed is left out; the parameter is still shown.
        return
