"""A call that has not been scheduled yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TaskFunction = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, init=False)
class TaskCall:
    """What `Docket.call` returns and `add_many` takes. Sending
    it again is idempotent: its key is looked up then."""

    function: TaskFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    when: datetime
    function_name: str | None = None
    # An automatic task that a worker schedules by itself.
    seed: bool = field(default=False, repr=False)
    # Holds the key that docket made up, until a call is
    # sent under it. Copies of a call share the list.
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
        # The generated __init__ of a frozen class calls a function
        # for each field, which takes three times as long.
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
        # A copy that does not share the list, perhaps in another process, may be sent first.
        self.spend_fresh_key()
        return {name: value for name, value in self.__dict__.items() if name != "unsent"}

    def spend_fresh_key(self) -> bool:
        """Whether the key is fresh, so that it need not be looked up: docket made it up, and no
        call was sent under it."""
        unsent = self.unsent
        if not unsent or unsent[0] != self.key:
            return False
        unsent.clear()
        return True
