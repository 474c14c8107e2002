"""A call that is not scheduled yet."""

from __future__ import annotations

import enum
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


@dataclass(frozen=True, init=False)
class TaskCall:
    """A call that is not scheduled yet. `Docket.call` returns it, and `add_many` schedules it. It
    can safely be scheduled again: the key exists then, so nothing changes."""

    function: TaskFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    when: datetime
    function_name: str | None = None
    # True for an automatic task that a worker schedules.
    seed: bool = field(default=False, repr=False)
    # The key that docket generated, and whether a call with that key was sent. Copies of a call
    # share the list.
    generated: list[Any] | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        when: datetime,
        function_name: str | None = None,
        seed: bool = False,
        generated: list[Any] | None = None,
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
        # The pickled copy does not share the list, and it may
        # be sent first, so the key no longer counts as fresh.
        self.spend_key()
        return self.__dict__

    def spend_key(self) -> KeyUse:
        """How the key was used before. From now on a generated key counts as sent."""
        generated = self.generated
        if generated is None or generated[0] != self.key:
            return KeyUse.GIVEN
        if generated[1]:
            return KeyUse.SENT
        generated[1] = True
        return KeyUse.FRESH
