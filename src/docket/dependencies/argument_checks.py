"""Whether a call fits its function, told where the call is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from uncalled_for import get_signature
from uncalled_for.introspection import (
    _signature_cache,  # pyright: ignore[reportPrivateUsage] - clients drop entries from it after changing a signature
)

from .plan import plan_for

Check = Callable[..., None]

_checks: dict[Callable[..., Any], tuple[inspect.Signature, Check]] = {}


def argument_check(function: Callable[..., Any]) -> Check:
    """A function to be called with the arguments of a task. It raises TypeError as the task's function would.

    It is made once per function, and again if a client has dropped the function's signature from the caches.
    """
    known = _checks.get(function)
    if known is not None and _signature_cache.get(function) is known[0]:
        return known[1]
    try:
        check = _compiled(function)
        _checks[function] = get_signature(function), check
    except (TypeError, ValueError):
        # There is no signature to check against.
        return _accept
    return check


def _accept(*args: Any, **kwargs: Any) -> None: ...


def _compiled(function: Callable[..., Any]) -> Check:
    """A function of the same parameters that does nothing: Python itself checks the arguments, and finds the words.

    A decorator may inject arguments, and `__wrapped__` only tells what the inner function takes. So it does not count.
    """
    signature = inspect.signature(function, follow_wrapped=False)
    text = _parameter_list(list(signature.parameters.values()), plan_for(function).parameters)
    try:
        check: Check = eval(f"lambda {text}: None")
    except SyntaxError:
        # A signature made by hand may have names that Python does not take.
        return _accept
    check.__name__ = check.__qualname__ = getattr(function, "__name__", "task")
    return check


def _parameter_list(parameters: list[inspect.Parameter], provided: Collection[str]) -> str:
    """The parameters as source. Those that docket provides may be left out, and so may all positional ones after them."""
    parts: list[str] = []
    has_default = is_keyword_only = False
    for at, parameter in enumerate(parameters):
        optional = parameter.default is not parameter.empty or parameter.name in provided
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}")
            is_keyword_only = True
        elif parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if not is_keyword_only:
                parts.append("*")
                is_keyword_only = True
            parts.append(f"{parameter.name}=None" if optional else parameter.name)
        else:
            has_default = has_default or optional
            parts.append(f"{parameter.name}=None" if has_default else parameter.name)
            following = parameters[at + 1].kind if at + 1 < len(parameters) else None
            if parameter.kind is parameter.POSITIONAL_ONLY and following is not parameter.POSITIONAL_ONLY:
                parts.append("/")
    return ", ".join(parts)
