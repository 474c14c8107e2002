"""The fields of a change, read from the signature of the function that makes it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Union, get_args, get_origin, get_type_hints

from docket.web.inputs import Input, flag, moment, seconds, text, texts, whole, wholes

from .values import json_list, json_object

# The field for each type of a parameter. Arguments of tasks are JSON.
_KINDS: dict[Any, Callable[[str, str], Input]] = {
    str: text,
    int: whole,
    bool: flag,
    datetime: moment,
    timedelta: seconds,
    list[str]: texts,
    list[int]: wholes,
    list[Any]: json_list,
    dict[str, Any]: json_object,
}
# Parameters with keys of tasks.
_KEYS = ("key", "keys")


def fields(function: Callable[..., Any], /, **about: str | Input) -> tuple[Input, ...]:
    """A field for each parameter in `about`, which has its help, or the whole field if it reads
    more narrowly than the type says. A parameter without a default is required.

    Raises KeyError for a name that is not a parameter, and for a type that no field reads.
    """
    parameters, hints = inspect.signature(function).parameters, get_type_hints(function)
    found: list[Input] = []
    for name, help in about.items():
        parameter = parameters[name]
        if isinstance(help, str):
            one = _KINDS[_without_none(hints[name])](name, help)
            is_required = parameter.default is parameter.empty
            found.append(replace(one, is_required=is_required, is_encoded=name in _KEYS))
        else:
            found.append(help)
    return tuple(found)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    (kind,) = (one for one in get_args(kind) if one is not types.NoneType)
    return kind
