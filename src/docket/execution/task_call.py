"""A call that is not scheduled yet."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from docket.storage.schema.requests import AddOptions


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

# The most generations of forked processes that have a byte of their own.
_MOST_FORKS = 255
# The byte of a call that was pickled before it was sent. Every request looks its key up.
_COPIED = 0


class Mark:
    """The mark of a generated key and the options of the call, for copies of the call, which share
    them (`dataclasses.replace`). A copy of the mark itself is that of a call that was sent
    (`dataclasses.asdict`, pickles)."""

    __slots__ = ("options", "shared")

    def __init__(self, shared: bytearray | None, options: AddOptions | None = None) -> None:
        self.shared: bytearray | None = shared
        self.options: AddOptions | None = options

    def __deepcopy__(self, memo: dict[int, Any]) -> Mark:
        return self.__reduce__()[0](*self.__reduce__()[1])

    def __reduce__(self) -> tuple[type[Mark], tuple[Any, ...]]:
        shared = None if self.shared is None else bytearray()
        return Mark, (shared,) if self.options is None else (shared, self.options)


class _ThisProcess:
    """A forked process has another byte than those that it was forked from."""

    def __init__(self) -> None:
        self.byte: int = 1
        # The mark of a new key. Without a byte, every request looks the key up.
        self.mark: bytes = bytes((self.byte,))

    def begin(self) -> None:
        self.byte += 1
        self.mark = bytes((self.byte,)) if self.byte <= _MOST_FORKS else b""


THIS_PROCESS: _ThisProcess = _ThisProcess()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THIS_PROCESS.begin)


class _Fields:
    """The fields of a call, while they can still be set. Slots, because a dictionary per call would
    be one more object that Python's garbage collector visits again and again."""

    __slots__ = (
        "__weakref__",
        "_options",
        "args",
        "function",
        "function_name",
        "generated_key",
        "key",
        "kwargs",
        "seed",
        "shared_mark",
        "when",
    )

    # One byte, which stands for the process in which the generated key is fresh. A call that was
    # sent has no byte. A bytearray, because one is made for every call, the garbage collector
    # ignores it, and its `pop` is a single step: of several threads, only one gets the byte.
    shared_mark: bytearray | None
    _options: AddOptions | None


# twin of: new_call (task_call.py)
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
    # The key that docket generated for this call, and its mark.
    generated_key: str | None = field(repr=False, compare=False)
    mark: Mark | None = field(repr=False, compare=False)

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
        mark: Mark | None = None,
    ) -> None:
        shared, options = (None, None) if mark is None else (mark.shared, mark.options)
        values = (function, args, kwargs, key, when, function_name, seed, generated_key, shared)
        for name, value in zip(_NAMES, values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_options", options)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in _NAMES}
        if self.shared_mark is not None and self.generated_key == self.key:
            if self.spend_key() is SENT:
                state["shared_mark"] = bytearray()
            else:
                # Nothing was sent: the copy and the call itself may be sent in any order.
                self.shared_mark[:] = bytes((_COPIED,))
                state["generated_key"] = state["shared_mark"] = None
        if self._options is not None:
            state["_options"] = self._options
        return state | getattr(self, "__dict__", {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in ({"_options": None} | state).items():
            object.__setattr__(self, name, value)

    def spend_key(self) -> KeyUse:
        """How the key was used before. From now on a generated key counts as sent."""
        mark = self.shared_mark
        if mark is None or self.generated_key != self.key:
            return GIVEN
        try:
            process = mark.pop()
        except IndexError:
            # The call was sent before, or another thread looks at the mark at this moment.
            return SENT
        if process == THIS_PROCESS.byte:
            return FRESH
        if process == _COPIED:
            mark.append(process)
            return GIVEN
        # The mark of the process from which this one was forked.
        return SENT


def _mark_of(call: TaskCall) -> Mark | None:
    """Whether the generated key is fresh, and the options. Copies of the call share them."""
    shared, options = call.shared_mark, call._options  # pyright: ignore[reportPrivateUsage] - a part of TaskCall
    return None if shared is None and options is None else Mark(shared, options)


# A field of the dataclass, so that copies with other fields share the mark and the options.
TaskCall.mark = property(_mark_of)  # pyright: ignore[reportAttributeAccessIssue]
_NAMES = ("function", "args", "kwargs", "key", "when", "function_name", "seed", "generated_key", "shared_mark")


# twin of: TaskCall (task_call.py)
def new_call(
    function: TaskFunction,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: str,
    when: datetime,
    function_name: str,
    is_generated: bool,
    options: AddOptions | None = None,
) -> TaskCall:
    """Makes a `TaskCall` in half of the time. `is_generated` if docket has just generated
    the key."""
    call: Any = _Fields()
    call.function = function
    call.args = args
    call.kwargs = kwargs
    call.key = key
    call.when = when
    call.function_name = function_name
    call.seed = False
    call.generated_key = key if is_generated else None
    call.shared_mark = bytearray(THIS_PROCESS.mark) if is_generated else None
    call._options = options
    call.__class__ = TaskCall
    return call
