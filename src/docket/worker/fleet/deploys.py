"""Distinguishes deploys: workers with the same code and settings belong to the same deploy."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any, cast

from docket.dependencies import Perpetual, plan_for
from docket.execution import TaskFunction


def deploy_fingerprint(tasks: Mapping[str, TaskFunction]) -> str:
    """A digest of the registered functions: their names,
    modules and code, and when they perpetuate themselves."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tasks):
        for part in (name, *_parts(tasks[name])):
            data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def _parts(function: TaskFunction) -> Iterator[str | bytes]:
    yield f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    code: Any = getattr(inspect.unwrap(function), "__code__", None)
    # A mock has a `__code__`, too, which passes isinstance().
    if type(code) is CodeType:
        yield from _code_parts(code)
    perpetual = plan_for(function).single(Perpetual)
    if perpetual is not None:
        yield f"{type(perpetual).__qualname__} {perpetual.automatic} {perpetual.every!r} {getattr(perpetual, 'expression', '')!r}"
        yield str(getattr(perpetual, "tz", ""))


def _code_parts(code: CodeType) -> Iterator[str | bytes]:
    yield code.co_code
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        elif isinstance(constant, frozenset):
            # Sorted, because the order of a frozenset depends on the hash seed.
            yield repr(sorted(repr(item) for item in cast("frozenset[Any]", constant)))
        else:
            yield repr(constant)
