"""Calls and signatures as text, for log lines and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from uncalled_for import Dependency, get_signature

from docket.annotations import Logged
from docket.model.texts import escaped

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
