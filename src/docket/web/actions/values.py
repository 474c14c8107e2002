"""Values in changes: those of rules, and arguments of tasks."""

from __future__ import annotations

import json
from typing import Any, cast

from docket.codec.json_codec import JsonCodec
from docket.docket import Docket
from docket.errors import TaskNotRegistered, Undecodable
from docket.model.typed_texts import TYPES, read_range, read_value
from docket.strikelist import Operator
from docket.web.inputs import Input, text

_ANY = "*"
# A deeper value is a mistake or an attack.
_DEEPEST = 50
_SCALAR: tuple[dict[str, Any], ...] = (
    {"type": "string", "maxLength": 1_000},
    {"type": "number"},
    {"type": "boolean"},
)
_VALUE_SCHEMA: dict[str, Any] = {
    "anyOf": [*_SCALAR, {"type": "array", "items": {"anyOf": [*_SCALAR]}, "minItems": 2, "maxItems": 2}]
}


def _read_rule_value(value: Any) -> Any:
    if isinstance(value, list):
        pair = cast("list[Any]", value)
        if len(pair) != 2:
            raise ValueError("a list has to have two items, for the operator between")
        return tuple(_read_scalar(item) for item in pair)
    return _read_scalar(value)


def _read_scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float):
        raise ValueError("it has to be a text, a number, true, false, or a pair of these")
    if isinstance(value, str) and len(value) > 1_000:
        raise ValueError("it has to have at most 1,000 characters")
    return value


RULE: tuple[Input, ...] = (
    text("function", "The name of the function; * or nothing for every function."),
    text("parameter", "The parameter to compare. Without it, every call matches."),
    text("operator", "How to compare.", choices=[operator.value for operator in Operator]),
    Input("value", "What to compare with: JSON.", _VALUE_SCHEMA, _read_rule_value, _read_rule_value),
    text("typed", f"The same as the command line writes it: text, or type:value with a type of {TYPES}."),
)


def read_rule(
    function: str | None = None,
    parameter: str | None = None,
    operator: str | None = None,
    value: Any = None,
    typed: str | None = None,
) -> tuple[str | None, str | None, Operator, Any]:
    """The function, or None for every function, the parameter, the operator and the value of a
    rule. Raises ValueError for fields that contradict each other."""
    named = None if function == _ANY else function
    if parameter is None:
        if value is not None or typed is not None or operator is not None:
            raise ValueError("an operator and a value go with a parameter")
        return named, None, Operator.EQUAL, None
    if (value is None) == (typed is None):
        raise ValueError(f"the parameter {parameter!r} needs either a value or a typed text")
    chosen = Operator.read(operator or Operator.EQUAL)
    if typed is not None:
        value = read_range(typed) if chosen is Operator.BETWEEN else read_value(typed)
    return named, parameter, chosen, value


def _read_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it has to be a JSON object")
    _check_depth(value)
    return cast("dict[str, Any]", value)


def _read_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it has to be a JSON list")
    _check_depth(value)
    return cast("list[Any]", value)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        inner = [item for one in level if isinstance(one, list | dict) for item in _inside(one)]
        if not inner:
            return
        level = inner
    raise ValueError("it is too deep")


def _inside(value: Any) -> list[Any]:
    return list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else cast("list[Any]", value)


def read_json_text(value: str) -> Any:
    """A JSON value in a form. Raises ValueError."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(value, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is too deep") from None
    except ValueError:
        raise ValueError("it has to be JSON; a text needs quotes") from None


def json_object(name: str, help: str) -> Input:
    return Input(name, help, {"type": "object"}, _read_object, lambda value: _read_object(read_json_text(value)))


def json_list(name: str, help: str) -> Input:
    return Input(name, help, {"type": "array"}, _read_list, lambda value: _read_list(read_json_text(value)))


def typed_arguments(docket: Docket, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the annotations of the function want them. Raises TaskNotRegistered if this
    process does not know the function, ValueError for a value that does not fit, and MissingPackage
    without docket[json]."""
    return typed_call(docket, function, [], arguments)[1]


def typed_call(
    docket: Docket, function: str, args: list[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All arguments of a call as the annotations of the function want them. Raises as
    `typed_arguments`."""
    found = docket.tasks.get(function)
    if found is None:
        raise TaskNotRegistered(
            f"this dashboard does not know the function {function!r}: start it with --app, or register the function"
        )
    try:
        return JsonCodec().decode_call(found, json.dumps([args, kwargs]).encode())
    except Undecodable as error:
        raise ValueError(str(error)) from None
