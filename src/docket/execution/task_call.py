"""A call that is not scheduled yet."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field
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

# Stands for this process in the marks of generated keys: a forked process has another object.
THIS_PROCESS: list[object] = [object()]


def _begin_process() -> None:
    THIS_PROCESS[0] = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_process)

# A key that docket generated, and a mark behind it: the process in which the key is fresh, or None
# if every request looks the key up, because a copy of the call was pickled before it was sent. A
# call that was sent has no mark. A plain list, because one is made for every call, and because its
# `pop` is a single step: of several threads, only one gets the mark.
GeneratedKey = list[Any]


@dataclass(frozen=True, init=False)
class TaskCall:
    """A call that is not scheduled yet. `Docket.call` returns it, and `add_many` schedules it. If
    it is scheduled again while its task waits or runs, nothing changes."""

    function: TaskFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    when: datetime
    function_name: str | None = None
    # True for an automatic task that a worker schedules.
    seed: bool = field(default=False, repr=False)
    generated: GeneratedKey | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        when: datetime,
        function_name: str | None = None,
        seed: bool = False,
        generated: GeneratedKey | None = None,
    ) -> None:
        # The generated __init__ of a frozen dataclass calls a
        # function for each field, which takes three times as long.
        fields = self.__dict__
        fields["function"] = function
        fields["args"] = args
        fields["kwargs"] = kwargs
        fields["key"] = key
        fields["when"] = when
        fields["function_name"] = function_name
        if seed:
            fields["seed"] = True
        if generated:
            fields["generated"] = generated

    def __getstate__(self) -> dict[str, Any]:
        if self.generated is None or self.spend_key() is SENT:
            return self.__dict__
        # Nothing was sent: the copy and the call itself may be sent in any order.
        self.generated[1:] = [None]
        return {name: value for name, value in self.__dict__.items() if name != "generated"}

    def spend_key(self) -> KeyUse:
        """How the key was used before. From now on a generated key counts as sent."""
        generated = self.generated
        try:
            if generated is None or generated[0] != self.key:
                return GIVEN
            mark = generated.pop()
        except IndexError:
            # Another thread looks at the key at this moment.
            return SENT
        if mark is THIS_PROCESS[0]:
            return FRESH
        if mark is None or isinstance(mark, str):
            generated.append(mark)
            return GIVEN if mark is None else SENT
        # The mark of the process from which this one was forked.
        return SENT
