"""A call that is not scheduled yet."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


class KeyUse(enum.Enum):
    """Who chose the key of a call, and whether the call was sent before
    (docs/design/state-machine.md, "Generated keys")."""

    GIVEN = "given"
    """The caller chose the key. The server looks it up."""
    FRESH = "fresh"
    """docket generated the key, and nothing was sent with it. The server need not look it up."""
    SENT = "sent"
    """docket generated the key, and a request with it may be under way."""


# An async function, or a plain function. `Plan.body` has the form that can be awaited.
TaskFunction = Callable[..., Any]
"""A function that can be a task: async or plain."""


_this_process = object()


def _begin_process() -> None:
    global _this_process
    _this_process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_process)


class GeneratedKey:
    """A key that docket generated for a call. Copies of the call in the same process share it."""

    __slots__ = ("_marks", "key")

    def __init__(self, key: str) -> None:
        self.key: str = key
        # The process in which the key is fresh; None if requests with the key look it up because a
        # copy of the call is pickled; nothing if the call was sent. A list, because its `pop` is a
        # single step: of several threads, only one gets the mark.
        self._marks: list[object] = [_this_process]

    def spend(self) -> KeyUse:
        """How the key was used before. From now on it counts as sent."""
        try:
            mark = self._marks.pop()
        except IndexError:
            return KeyUse.SENT
        if mark is None:
            self._marks.append(None)
            return KeyUse.GIVEN
        # A forked process may send the call, too. It has another mark.
        return KeyUse.FRESH if mark is _this_process else KeyUse.SENT

    def spend_for_copy(self) -> bool:
        """Whether nothing was sent with the key. Then the copy and the call itself may be sent in
        any order, and every request looks the key up."""
        is_unsent = self.spend() is not KeyUse.SENT
        if is_unsent and not self._marks:
            self._marks.append(None)
        return is_unsent


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
        state = self.__dict__
        if self.generated is not None and self.generated.spend_for_copy():
            state = {name: value for name, value in state.items() if name != "generated"}
        return state

    def spend_key(self) -> KeyUse:
        """How the key was used before. From now on a generated key counts as sent."""
        generated = self.generated
        return KeyUse.GIVEN if generated is None or generated.key != self.key else generated.spend()
