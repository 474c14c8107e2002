"""The texts of `Logged` arguments that are stored with a call, so that observers can show them
without decoding anything (docs/design/payloads.md)."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from docket.annotations import Logged

from .display import resolved_signature

if TYPE_CHECKING:
    from .execution import Execution

_LONGEST_TEXT = 200
_MOST_BYTES = 1_000
_MOST_ARGUMENTS = _MOST_ITEMS = 20
_CUT = "…"
# Values of these types, and short texts, need no shortening.
_SHORT_TYPES = frozenset((bool, float, type(None)))
_SMALL = 10**18
_SHORT_TEXT = 90


class LoggedParameter(NamedTuple):
    name: str
    # Among the positional arguments. None if the argument can only be passed by name.
    position: int | None
    # It takes all further positional arguments.
    is_rest: bool
    mark: Logged
    # The `repr` is shown, not a length, and not the text of a user's own mark.
    shows_value: bool


# The functions that have Logged parameters. All others do not pay for them.
functions_with_logged: dict[Callable[..., Any], tuple[LoggedParameter, ...]] = {}


def note_function(function: Callable[..., Any]) -> None:
    """Called once, when the function is registered."""
    parameters = _logged_parameters(function)
    if parameters:
        functions_with_logged[function] = parameters
    else:
        functions_with_logged.pop(function, None)


def _logged_parameters(function: Callable[..., Any]) -> tuple[LoggedParameter, ...]:
    try:
        signature = resolved_signature(function)
        marks = Logged.annotated_parameters(signature)
    except (TypeError, ValueError):
        # The function has no signature.
        return ()
    found: list[LoggedParameter] = []
    for position, parameter in enumerate(signature.parameters.values()):
        mark = marks.get(parameter.name)
        if mark is None or parameter.kind is parameter.VAR_KEYWORD:
            continue
        is_named = parameter.kind is parameter.KEYWORD_ONLY
        is_rest = parameter.kind is parameter.VAR_POSITIONAL
        shows_value = type(mark) is Logged and not mark.length_only
        found.append(LoggedParameter(parameter.name, None if is_named else position, is_rest, mark, shows_value))
    return tuple(found[:_MOST_ARGUMENTS])


def shower(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, str]] | None:
    """`show_arguments` for one function, or None if it has no Logged parameters."""
    parameters = functions_with_logged.get(function)
    return partial(show_arguments, parameters) if parameters is not None else None


def show_arguments_of(execution: Execution[Any]) -> dict[str, str]:
    return show_arguments(functions_with_logged[execution.function], execution.args, execution.kwargs)


def show_arguments(
    parameters: tuple[LoggedParameter, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, str]:
    """The texts by parameter, short enough to be stored with every task. The first ones have
    precedence. Never raises."""
    shown: dict[str, str] = {}
    left = _MOST_BYTES
    for parameter in parameters:
        name, position = parameter.name, parameter.position
        if position is not None and position < len(args):
            value = args[position:] if parameter.is_rest else args[position]
        elif name in kwargs:
            value = kwargs[name]
        else:
            continue
        text = _text(parameter, value)
        size = len(name) + len(text) if text.isascii() else len(name) + len(text.encode())
        shown[name] = text if size <= left else _CUT
        left -= min(size, left)
    return shown


def shown_value(value: Any) -> str:
    """The text of a `Logged` parameter with this value."""
    return _text(LoggedParameter("", None, False, Logged(), True), value)


def _text(parameter: LoggedParameter, value: Any) -> str:
    if parameter.shows_value:
        kind = type(value)  # pyright: ignore[reportUnknownVariableType] - any type
        if kind in _SHORT_TYPES or (kind is int and -_SMALL < value < _SMALL):
            return repr(value)
        if kind is str and len(value) <= _SHORT_TEXT and value.isprintable():
            return repr(value)
    try:
        text = _repr(value) if parameter.shows_value else parameter.mark.format(value)
    except Exception as error:
        # A user's type may fail in any way. A display must not fail the task.
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + _CUT


def _shortening_repr() -> Callable[[Any], str]:
    """Cuts large containers and texts before they become text. Shows everything else as `repr`
    does, even if that fails."""
    shortening = reprlib.Repr()
    shortening.maxlevel = 4
    shortening.maxtuple = shortening.maxlist = shortening.maxdict = _MOST_ITEMS
    shortening.maxset = shortening.maxfrozenset = shortening.maxdeque = shortening.maxarray = _MOST_ITEMS
    shortening.maxstring = shortening.maxlong = shortening.maxother = _LONGEST_TEXT
    return shortening.repr


_repr = _shortening_repr()
