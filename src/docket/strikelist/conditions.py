"""Matches calls against the strikes in force. It is fast for any number of strikes."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from uncalled_for import Dependency, get_signature

from .instructions import Operator, Strike, StrikeInstruction, shown

logger: logging.Logger = logging.getLogger("docket.strikelist")


class TaskToMatch(Protocol):
    """The part of a task that strikes examine."""

    @property
    def function_name(self) -> str: ...

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def args(self) -> tuple[Any, ...]: ...

    @property
    def kwargs(self) -> dict[str, Any]: ...


def _between(value: Any, bounds: Any) -> Any:
    low, high = bounds
    return low <= value <= high


_COMPARISONS: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.GREATER_THAN: operator.gt,
    Operator.GREATER_THAN_OR_EQUAL: operator.ge,
    Operator.LESS_THAN: operator.lt,
    Operator.LESS_THAN_OR_EQUAL: operator.le,
    Operator.BETWEEN: _between,
}


def are_equal(a: Any, b: Any) -> bool:
    """Whether two values of users are equal. Values whose
    comparison fails, or has no truth value, are not equal."""
    try:
        return a is b or bool(a == b)
    except Exception:
        return False


def is_same(a: StrikeInstruction, b: StrikeInstruction) -> bool:
    return a.target == b.target and are_equal(a.value, b.value)


@dataclass(slots=True)
class Conditions:
    """The strikes, or the pauses, on one parameter. Those with `==`, of
    which there may be thousands, cost one dict lookup."""

    equals: dict[Any, set[str]] = field(default_factory=dict[Any, set[str]])
    others: dict[str, Strike] = field(default_factory=dict[str, Strike])
    _logged: set[str] = field(default_factory=set[str])

    def add(self, id: str, strike: Strike) -> None:
        if strike.operator is Operator.EQUAL:
            try:
                self.equals.setdefault(strike.value, set()).add(id)
            except Exception:
                # A value that cannot be hashed is compared on its own.
                pass
            else:
                return
        self.others[id] = strike

    def remove(self, id: str, strike: Strike) -> None:
        self._logged.discard(id)
        if self.others.pop(id, None) is not None:
            return
        ids = self.equals[strike.value]
        ids.discard(id)
        if not ids:
            del self.equals[strike.value]

    def __bool__(self) -> bool:
        return bool(self.equals or self.others)

    def match(self, value: Any) -> str | None:
        """The id of a strike that matches the value, or None."""
        if self.equals:
            try:
                ids = self.equals.get(value)
            except Exception:
                ids = next((ids for other, ids in self.equals.items() if are_equal(value, other)), None)
            if ids:
                return next(iter(ids))
        return next((id for id, strike in self.others.items() if self._compare(id, strike, value)), None)

    def _compare(self, id: str, strike: Strike, value: Any) -> bool:
        try:
            return bool(_COMPARISONS[strike.operator](value, strike.value))
        except Exception as error:
            if id not in self._logged:
                self._logged.add(id)
                logger.warning(
                    "%s on %s: the value %s of type %s cannot be compared and does not match (%s)",
                    strike.direction,
                    strike.call_repr(),
                    shown(value),
                    type(value).__name__,
                    error,
                )
            return False


class Index:
    """The strikes, or the pauses, in force, by function and parameter."""

    def __init__(self) -> None:
        self._functions: dict[str, set[str]] = {}
        self._parameters: dict[str | None, dict[str, Conditions]] = {}

    def add(self, id: str, strike: Strike) -> None:
        if strike.parameter is not None:
            conditions = self._parameters.setdefault(strike.function, {}).setdefault(strike.parameter, Conditions())
            conditions.add(id, strike)
        elif strike.function is not None:
            self._functions.setdefault(strike.function, set()).add(id)

    def remove(self, id: str, strike: Strike) -> None:
        if strike.parameter is None:
            ids = self._functions.get(strike.function or "", set())
            ids.discard(id)
            if not ids:
                self._functions.pop(strike.function or "", None)
            return
        parameters = self._parameters[strike.function]
        parameters[strike.parameter].remove(id, strike)
        if not parameters[strike.parameter]:
            del parameters[strike.parameter]
        if not parameters:
            del self._parameters[strike.function]

    def has_function(self, name: str) -> bool:
        return name in self._functions

    def match_values(self, values: Mapping[str, Any]) -> bool:
        """Whether a strike on a parameter of every function matches one of these values."""
        return _first_match(self._parameters.get(None), values) is not None

    def match_call(self, call: TaskToMatch) -> str | None:
        """The id of a strike that matches the call, or None."""
        ids = self._functions.get(call.function_name)
        if ids:
            return next(iter(ids))
        own, general = self._parameters.get(call.function_name), self._parameters.get(None)
        if own is None and general is None:
            return None
        values = arguments_of(call)
        return _first_match(own, values) or _first_match(general, values)


def _first_match(parameters: Mapping[str, Conditions] | None, values: Mapping[str, Any]) -> str | None:
    for name, conditions in (parameters or {}).items():
        if name in values and (id := conditions.match(values[name])) is not None:
            return id
    return None


def arguments_of(call: TaskToMatch) -> dict[str, Any]:
    """The arguments by name, including defaults but no dependencies.

    It never raises an error. A call that does not fit
    its signature fails later, when the task runs.
    """
    try:
        parameters = get_signature(call.function).parameters
    except (ValueError, TypeError):
        return dict(call.kwargs)
    values: dict[str, Any] = {}
    given = list(call.args)
    for name, parameter in parameters.items():
        default: Any = parameter.default
        if parameter.kind is parameter.VAR_POSITIONAL:
            values[name] = tuple(given)
        elif given and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            values[name] = given.pop(0)
        elif default is not parameter.empty and not isinstance(default, Dependency):
            values[name] = default
    return {**values, **call.kwargs}
