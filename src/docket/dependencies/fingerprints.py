"""Fingerprints of values: equal values have equal fingerprints in every process, whatever its hash
seed. Limits compare values by them, and dead letters are found by those of `Logged` arguments."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from types import BuiltinFunctionType, FunctionType
from typing import Any, SupportsIndex, cast

from docket.annotations import Logged
from docket.execution.arguments import resolved_signature

_MAX_DEPTH = 50


def fingerprint(*values: Any) -> str:
    """The fingerprint of some values: a short text of letters, digits, `-` and `_`.

    Values that compare equal (1, 1.0 and True; a str and a str enum of that
    value) have the same fingerprint. 1 and "1" do not. The order of sets and
    dicts does not matter. Other objects count as equal if their class and their
    pickled state are equal. Raises TypeError for objects that cannot be pickled.
    """
    digest = hashlib.blake2b(_encode(values, 0), digest_size=12).digest()
    return base64.urlsafe_b64encode(digest).decode()


def _encode(value: Any, depth: int) -> bytes:
    if depth > _MAX_DEPTH:
        raise TypeError("it is nested too deeply")
    if value is None:
        return b"n"
    if isinstance(value, str):
        return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
    number = _number(value)
    if number is not None:
        return _tagged(b"i", number)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _tagged(b"b", bytes(cast(bytes, value)))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return _tagged(b"a", value.astimezone(UTC).isoformat().encode())
    return _container(value, depth + 1) or _object(value, depth + 1)


def _number(value: Any) -> bytes | None:
    """One text for equal numbers of all types."""
    if isinstance(value, Integral):
        return b"%d" % int(cast(SupportsIndex, value))
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        return str(float(value)).encode()
    if isinstance(value, (float, Decimal, Fraction)):
        top, bottom = value.as_integer_ratio()
        return b"%d" % top if bottom == 1 else b"%d/%d" % (top, bottom)
    return None


def _container(value: Any, depth: int) -> bytes | None:
    if isinstance(value, tuple):
        return _tagged(b"t", *_each(cast(tuple[Any, ...], value), depth))
    if isinstance(value, list):
        return _tagged(b"l", *_each(cast(list[Any], value), depth))
    if isinstance(value, (set, frozenset)):
        return _tagged(b"e", *sorted(_each(cast(set[Any], value), depth)))
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return _tagged(b"d", *sorted(_encode(k, depth) + _encode(v, depth) for k, v in pairs))
    return None


def _object(value: Any, depth: int) -> bytes:
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return _tagged(b"g", f"{value.__module__}.{value.__qualname__}".encode())
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return _tagged(b"g", f"{type(value).__module__}.{reduced}".encode())
    maker, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    parts: tuple[Any, ...] = (maker, arguments, state, list[Any](items or ()), dict[Any, Any](pairs or ()))
    return _tagged(b"o", *_each(parts, depth))


def _each(values: Iterable[Any], depth: int) -> list[bytes]:
    return [_encode(value, depth) for value in values]


def _tagged(tag: bytes, *parts: bytes) -> bytes:
    """The parts, each after its length, so that different
    lists of parts never give the same bytes."""
    return tag + b"".join(b"%d:%b" % (len(part), part) for part in parts) + b";"


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
