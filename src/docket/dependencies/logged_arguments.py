"""Fingerprints of `Logged` arguments, by which dead letters can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from docket.annotations import Logged
from docket.execution.display import resolved_signature

from .fingerprints import fingerprint


def logged_fingerprints(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """By the names of parameters, defaults included. Arguments of which only the length may be
    logged, and those without a fingerprint, are left out."""
    try:
        signature = resolved_signature(function)
        logged = Logged.annotated_parameters(signature)
        if not logged:
            return {}
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
    except (TypeError, ValueError):
        return {}
    found: dict[str, str] = {}
    for name, mark in logged.items():
        if mark.length_only:
            continue
        for shown, value in _named(name, signature.parameters[name].kind, bound.arguments.get(name)):
            try:
                found[shown] = fingerprint(value)
            except Exception:
                # The classes of arguments may raise anything.
                continue
    return found


def _named(name: str, kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    if kind.name == "VAR_KEYWORD":
        yield from cast("dict[str, Any]", value or {}).items()
    elif kind.name != "VAR_POSITIONAL":
        yield name, value
