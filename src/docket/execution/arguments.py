"""The arguments of a call: matched with the parameters
of its function, and as text for logs and displays."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from uncalled_for import Dependency, get_signature

from docket.annotations import Logged
from docket.model.texts import escaped

if TYPE_CHECKING:
    from .execution import Execution


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


HIDDEN = "..."
# The texts of calls with more arguments are not kept.
MOST_KEPT = 50


def display_name(function: Callable[..., Any]) -> str:
    """The name of a function in messages. Callable objects may have none."""
    return getattr(function, "__name__", repr(function))


def show_call(
    function: Callable[..., Any] | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str
) -> str:
    """`name(args…){key}`. Only `Logged` arguments are shown."""
    marks = _marks_of(function) if function is not None else _NO_MARKS
    if marks is _NO_MARKS:
        if not kwargs and len(args) <= MOST_KEPT:
            return f"{_hidden_call(name, len(args))}{{{escaped(key)}}}"
        shown = [HIDDEN] * len(args) + [f"{n}={HIDDEN}" for n in kwargs]
    else:
        shown = [_show(marks.at(position), value) for position, value in enumerate(args)]
        shown += [f"{n}={_show(marks.named(n), value)}" for n, value in kwargs.items()]
    return f"{escaped(name)}({', '.join(shown)}){{{escaped(key)}}}"


def shows_values(function: Callable[..., Any]) -> bool:
    """Whether the text of a call shows arguments, which the function may change."""
    return _marks_of(function) is not _NO_MARKS


@lru_cache(maxsize=1000)
def _hidden_call(name: str, count: int) -> str:
    return f"{escaped(name)}({', '.join([HIDDEN] * count)})"


def _show(mark: Logged | None, value: Any) -> str:
    return HIDDEN if mark is None else mark.format(value)


class _Marks:
    """The `Logged` annotations of a signature, looked up by position or name."""

    def __init__(self, signature: inspect.Signature, logged: Mapping[str, Logged]) -> None:
        self._positional: list[Logged | None] = []
        self._named: dict[str, Logged | None] = {}
        self._more_positional = self._more_named = None
        for name, parameter in signature.parameters.items():
            mark = logged.get(name)
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._positional.append(mark)
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._named[name] = mark
            elif parameter.kind is parameter.VAR_POSITIONAL:
                self._more_positional = mark
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._more_named = mark

    def at(self, position: int) -> Logged | None:
        return self._positional[position] if position < len(self._positional) else self._more_positional

    def named(self, name: str) -> Logged | None:
        return self._named.get(name, self._more_named)


_NO_MARKS = _Marks(inspect.Signature(), {})
# By the signature: a client may change it.
_marks: dict[Callable[..., Any], tuple[inspect.Signature, _Marks]] = {}


def _marks_of(function: Callable[..., Any]) -> _Marks:
    signature = get_signature(function)
    known = _marks.get(function)
    if known is None or known[0] is not signature:
        resolved = resolved_signature(function)
        logged = Logged.annotated_parameters(resolved)
        known = _marks[function] = signature, _Marks(resolved, logged) if logged else _NO_MARKS
    return known[1]


_resolved: dict[Callable[..., Any], tuple[inspect.Signature, inspect.Signature]] = {}


def resolved_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature with its types, even if they are written as strings
    (`from __future__ import annotations`)."""
    signature = get_signature(function)
    known = _resolved.get(function)
    if known is not None and known[0] is signature:
        return known[1]
    resolved = _with_types(function, signature)
    _resolved[function] = signature, resolved
    return resolved


def _with_types(function: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    if not any(isinstance(parameter.annotation, str) for parameter in signature.parameters.values()):
        return signature
    try:
        types = get_type_hints(function, include_extras=True)
    except Exception:
        # A type is imported only for type checkers: keep the strings.
        return signature
    parameters = [p.replace(annotation=types.get(p.name, p.annotation)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters)


def compact_signature(signature: inspect.Signature) -> str:
    """A signature on one line, with short types and defaults. `...` stands for its dependencies."""
    pieces: list[str] = []
    hidden = 0
    for name, parameter in signature.parameters.items():
        if isinstance(parameter.default, Dependency):
            hidden += 1
            continue
        piece = name
        if parameter.kind is parameter.VAR_POSITIONAL:
            piece = f"*{name}"
        elif parameter.kind is parameter.VAR_KEYWORD:
            piece = f"**{name}"
        if parameter.annotation is not inspect.Parameter.empty:
            piece += f": {_type_name(parameter.annotation)}"
        if parameter.default is not inspect.Parameter.empty:
            piece += f" = {parameter.default!r}"
        pieces.append(piece)
    if hidden:
        pieces.append("...")
    return ", ".join(pieces)


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if hasattr(annotation, "__metadata__"):
        return _type_name(annotation.__origin__)
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


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
        text = _shown_text(parameter, value)
        size = len(name) + len(text) if text.isascii() else len(name) + len(text.encode())
        shown[name] = text if size <= left else _CUT
        left -= min(size, left)
    return shown


def shown_value(value: Any) -> str:
    """The text of a `Logged` parameter with this value."""
    return _shown_text(LoggedParameter("", None, False, Logged(), True), value)


def _shown_text(parameter: LoggedParameter, value: Any) -> str:
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
