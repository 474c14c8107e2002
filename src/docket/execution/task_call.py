"""A call that is not scheduled yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

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
    # Has the key that docket generated, until a call with
    # that key is sent. Copies of a call share the list.
    unsent: list[str] | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        function: TaskFunction,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str,
        when: datetime,
        function_name: str | None = None,
        seed: bool = False,
        unsent: list[str] | None = None,
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
        if unsent:
            fields["unsent"] = unsent

    def __getstate__(self) -> dict[str, Any]:
        # The pickled copy does not share the list, and it may
        # be sent first, so the key no longer counts as fresh.
        self.spend_fresh_key()
        return {name: value for name, value in self.__dict__.items() if name != "unsent"}

    def spend_fresh_key(self) -> bool:
        """Whether the key is fresh, so that the server need not look it up. A key is fresh if
        docket generated it and no call was sent with it. The next call returns False."""
        unsent = self.unsent
        if not unsent or unsent[0] != self.key:
            return False
        unsent.clear()
        return True
