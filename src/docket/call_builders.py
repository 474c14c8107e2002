"""Builds the calls that `add_many` and `replace_many` schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from docket.dependencies.argument_checks import Check, argument_check
from docket.execution import TaskCall, TaskFunction
from docket.execution.task_call import new_call
from docket.model.task_keys import new_key
from docket.pending_call import check_when_and_key
from docket.registry import Registry

Builder = Callable[..., TaskCall]

# Programs that make functions as they go must not fill the memory.
MOST = 1000


class _Known(NamedTuple):
    name: str
    check: Check
    build: Builder


class CallBuilders:
    """Functions that take the arguments of a task and return its call. Callers of `add_many` ask
    for one per call, so those without time and key are kept."""

    def __init__(self, registry: Registry, now: Callable[[], datetime]) -> None:
        self._registry = registry
        self._now = now
        self._known: dict[TaskFunction, _Known] = {}

    def get(self, function: TaskFunction | str, when: datetime | None, key: str | None) -> Builder:
        if isinstance(function, str) or when is not None or key is not None:
            return self._new(function, when, key).build
        known = self._known.get(function)
        if (
            known is None
            or self._registry.tasks.get(known.name) is not function
            or argument_check(function) is not known.check
        ):
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[function] = self._new(function, when, key)
        return known.build

    def _new(self, function: TaskFunction | str, when: datetime | None, key: str | None) -> _Known:
        found, name = self._registry.find(function)
        check_when_and_key(when, key, name)
        check, now = argument_check(found), self._now

        def build(*args: Any, **kwargs: Any) -> TaskCall:
            check(*args, **kwargs)
            task_key = new_key() if key is None else key
            return new_call(found, args, kwargs, task_key, when or now(), name, key is None)

        return _Known(name, check, build)
