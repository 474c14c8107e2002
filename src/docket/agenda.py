"""An agenda: calls that are spread over a span of time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ParamSpec, overload

from docket.dependencies import argument_check
from docket.docket import Docket
from docket.execution import Execution, TaskCall, TaskFunction

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class _Item:
    function: TaskFunction | str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str | None


class Agenda:
    """Collects calls and scatters them, so that they do not all run at once.

    It may be scattered more than once. An item whose key still waits is left alone; an item
    without a key is scheduled again.
    """

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[TaskFunction | str, tuple[Any, ...], dict[str, Any], str | None]]:
        for item in self._items:
            yield item.function, item.args, item.kwargs, item.key

    @overload
    def add(self, function: Callable[P, Any], key: str | None = None) -> Callable[P, None]: ...
    @overload
    def add(self, function: str, key: str | None = None) -> Callable[..., None]: ...
    def add(self, function: TaskFunction | str, key: str | None = None) -> Callable[..., None]:
        """Puts a call on the agenda:
        `agenda.add(function, key)(*args, **kwargs)`. Nothing is scheduled yet.

        Raises TypeError for arguments that the function does not take. If
        the function is given by name, `scatter` checks its arguments.
        """
        check = None if isinstance(function, str) else argument_check(function)

        def put(*args: Any, **kwargs: Any) -> None:
            if check is not None:
                check(*args, **kwargs)
            self._items.append(_Item(function, args, kwargs, key))

        return put

    def clear(self) -> None:
        """Forgets every call."""
        self._items.clear()

    async def scatter(
        self,
        docket: Docket,
        over: timedelta,
        start: datetime | None = None,
        jitter: timedelta | None = None,
    ) -> list[Execution]:
        """Schedules the calls evenly over a span that begins
        at `start` (now, if not given), in their order.

        `jitter` moves each due time at random, by at most this much, and never before the start. A
        single call goes to the middle. Raises ValueError for a span that is not positive, and
        TaskNotRegistered for a name that the docket does not know; in these cases nothing is
        scheduled. If single calls cannot be scheduled, the others are, and then the first error is
        raised.
        """
        if over <= timedelta(0):
            raise ValueError(f"over={over}: the span to scatter over must be positive")
        begin = start or docket.now()
        # Make every call before the first is sent, so that an unknown name prevents all of them.
        calls = [
            self._call(docket, item, max(begin + offset + _shake(jitter), begin))
            for item, offset in zip(self._items, _offsets(len(self._items), over), strict=True)
        ]
        executions = await docket.add_many(calls)
        _raise_failure(executions)
        return executions

    def _call(self, docket: Docket, item: _Item, when: datetime) -> TaskCall:
        return docket.call(item.function, when=when, key=item.key)(*item.args, **item.kwargs)


def _offsets(count: int, over: timedelta) -> list[timedelta]:
    if count == 1:
        return [over / 2]
    return [over * i / (count - 1) for i in range(count)]


def _shake(jitter: timedelta | None) -> timedelta:
    return jitter * random.uniform(-1, 1) if jitter else timedelta(0)


def _raise_failure(executions: Sequence[Execution]) -> None:
    failed = [e.schedule_exception for e in executions if e.schedule_exception is not None]
    if failed:
        failed[0].add_note(f"{len(failed):,} of the {len(executions):,} calls on the agenda could not be scheduled")
        raise failed[0]
