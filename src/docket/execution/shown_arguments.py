"""The texts of `Logged` arguments that are stored with a call, so that observers can show them
without decoding anything (docs/design/payloads.md)."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from docket.annotations import Logged

from .arguments import arguments_by_name
from .display import resolved_signature

if TYPE_CHECKING:
    from .execution import Execution

# The functions that have Logged parameters. All others do not pay for them.
functions_with_logged: set[Callable[..., Any]] = set()

_LONGEST_TEXT = 200
_MOST_BYTES = 1_000
_MOST_ARGUMENTS = _MOST_ITEMS = 20
_CUT = "…"


def note_function(function: Callable[..., Any]) -> None:
    """Called once, when the function is registered."""
    try:
        logged = Logged.annotated_parameters(resolved_signature(function))
    except (TypeError, ValueError):
        # The function has no signature.
        return
    if logged:
        functions_with_logged.add(function)
    else:
        functions_with_logged.discard(function)


def shower(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, str]] | None:
    """`show_arguments` for one function, or None if it has no Logged parameters."""
    return partial(show_arguments, function) if function in functions_with_logged else None


def show_arguments_of(execution: Execution[Any]) -> dict[str, str]:
    return show_arguments(execution.function, execution.args, execution.kwargs)


def show_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """The texts by parameter, short enough to be stored with every task. Never raises."""
    try:
        logged = Logged.annotated_parameters(resolved_signature(function))
        return _bounded(_texts(logged, arguments_by_name(function, args, kwargs)))
    except Exception:
        # A user's type may fail in any way. A display must not fail the task.
        return {}


def _texts(logged: Mapping[str, Logged], arguments: dict[str, Any]) -> dict[str, str]:
    passed = [name for name in logged if name in arguments]
    return {name: _text(logged[name], arguments[name]) for name in passed[:_MOST_ARGUMENTS]}


def _text(mark: Logged, value: Any) -> str:
    shows_value = type(mark) is Logged and not mark.length_only
    try:
        text = _repr(value) if shows_value else mark.format(value)
    except Exception as error:
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + _CUT


def _bounded(texts: dict[str, str]) -> dict[str, str]:
    """The texts that fit together. The first ones have precedence."""
    left, bounded = _MOST_BYTES, dict[str, str]()
    for name, text in texts.items():
        size = len(name.encode("utf-8", "backslashreplace")) + len(text.encode())
        bounded[name] = text if size <= left else _CUT
        left -= min(size, left)
    return bounded


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
