"""A call that is not scheduled yet."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any


class KeyUse(enum.Enum):
    """The origin of a call's key, and whether a request with it was sent before
    (docs/design/state-machine.md, "Generated keys")."""

    GIVEN = "given"
    """The caller chose the key. The server looks it up."""
    FRESH = "fresh"
    """docket generated the key, and nothing was sent with it. The server need not look it up."""
    SENT = "sent"
    """docket generated the key, and a request with it may be under way."""


# The lookup of a member takes a while, and every call needs some.
GIVEN, FRESH, SENT = KeyUse.GIVEN, KeyUse.FRESH, KeyUse.SENT

# An async function, or a plain function. `Plan.body` has the form that can be awaited.
TaskFunction = Callable[..., Any]
"""A function that can be a task: async or plain."""

# Stands for this process in the marks of generated keys: a forked process has another byte.
THIS_PROCESS: list[bytes] = [b"\x01"]
# Stands for a call of which a copy was pickled before it was sent: every request looks the key up.
_COPIED = b"\x00"


def _begin_process() -> None:
    THIS_PROCESS[0] = bytes((THIS_PROCESS[0][0] % 255 + 1,))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_process)


class _Fields:
    """The fields of a call, while they can still be set. Slots, because a dictionary per call would
    be one more object that Python's garbage collector visits again and again."""

    __slots__ = ("args", "function", "function_name", "generated_key", "key", "kwargs", "mark", "seed", "when")

    function: TaskFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    when: datetime
    function_name: str | None
    seed: bool
    generated_key: str | None
    mark: bytearray | None

    def __init__(
        self,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        when: datetime,
        function_name: str | None = None,
        seed: bool = False,
        generated_key: str | None = None,
        mark: bytearray | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.key = key
        self.when = when
        self.function_name = function_name
        self.seed = seed
        self.generated_key = generated_key
        self.mark = mark


@dataclass(frozen=True, init=False)
class TaskCall(_Fields):
    """A call that is not scheduled yet. `Docket.call` returns it, and `add_many` schedules it. If
    it is scheduled again while its task waits or runs, nothing changes."""

    __slots__ = ()

    function: TaskFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    when: datetime
    function_name: str | None
    # True for an automatic task that a worker schedules.
    seed: bool = field(repr=False)
    # The key that docket generated for this call, and its mark: one byte, which stands for the
    # process in which the key is fresh. A call that was sent has no byte. Copies of the call share
    # the mark. A bytearray, because one is made for every call, the garbage collector ignores it,
    # and its `pop` is a single step: of several threads, only one gets the byte.
    generated_key: str | None = field(repr=False, compare=False)
    mark: bytearray | None = field(repr=False, compare=False)

    def __init__(
        self,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        when: datetime,
        function_name: str | None = None,
        seed: bool = False,
        generated_key: str | None = None,
        mark: bytearray | None = None,
    ) -> None:
        values = (function, args, kwargs, key, when, function_name, seed, generated_key, mark)
        for name, value in zip(_NAMES, values, strict=True):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[type[TaskCall], tuple[Any, ...]]:
        values = tuple(getattr(self, name) for name in _NAMES[:-2])
        if self.mark is None or self.generated_key != self.key:
            return TaskCall, values
        if self.spend_key() is SENT:
            return TaskCall, (*values, self.key, bytearray())
        # Nothing was sent: the copy and the call itself may be sent in any order.
        self.mark[:] = _COPIED
        return TaskCall, values

    def spend_key(self) -> KeyUse:
        """How the key was used before. From now on a generated key counts as sent."""
        mark = self.mark
        if mark is None or self.generated_key != self.key:
            return GIVEN
        try:
            process = mark.pop()
        except IndexError:
            # The call was sent before, or another thread looks at the mark at this moment.
            return SENT
        if process == THIS_PROCESS[0][0]:
            return FRESH
        if process == _COPIED[0]:
            mark.append(process)
            return GIVEN
        # The mark of the process from which this one was forked.
        return SENT


_NAMES: tuple[str, ...] = tuple(one.name for one in fields(TaskCall))


def new_call(
    function: TaskFunction,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: str,
    when: datetime,
    function_name: str,
    is_generated: bool,
) -> TaskCall:
    """The same as `TaskCall(…)`, in half of the time. `is_generated` if docket has just generated
    the key."""
    generated, mark = (key, bytearray(THIS_PROCESS[0])) if is_generated else (None, None)
    call: Any = _Fields(function, args, kwargs, key, when, function_name, False, generated, mark)
    call.__class__ = TaskCall
    return call
