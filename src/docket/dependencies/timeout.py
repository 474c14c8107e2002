"""A limit on how long a run may take."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .base import Runtime
from .context import WorkerView
from .durations import format_duration

if TYPE_CHECKING:
    from typing import Self

    from docket.execution import Execution
    from docket.execution.execution import TaskFunction


class Timeout(Runtime[Any]):
    """Ends a run with TimeoutError after `base`, unless it asks for more time."""

    def __init__(self, base: timedelta) -> None:
        if base <= timedelta(0):
            raise ValueError(f"Timeout({base}): it must be positive")
        self.base = base
        self._granted = base
        self._scope: asyncio.Timeout | None = None

    def provide(self, execution: Execution, worker: WorkerView) -> Self:
        return type(self)(self.base)

    async def __aenter__(self) -> Self:
        return type(self)(self.base)

    def remaining(self) -> timedelta:
        """How much time is left."""
        when = self._scope.when() if self._scope is not None else None
        if when is None:
            return self.base
        return timedelta(seconds=when - asyncio.get_running_loop().time())

    def extend(self, by: timedelta | None = None) -> None:
        """Gives the run more time: `by`, or once more what it had at first."""
        if self._scope is not None:
            more = by or self.base
            self._scope.reschedule((self._scope.when() or 0) + more.total_seconds())
            self._granted += more

    async def run(
        self, execution: Execution, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        scope = self._scope = asyncio.timeout(self.base.total_seconds())
        try:
            async with scope:
                return await function(*args, **kwargs)
        except TimeoutError as error:
            # Ours comes without a word; what the body itself raised stays as it is.
            if error.args or not scope.expired():
                raise
            limit = format_duration(self._granted.total_seconds())
            raise TimeoutError(
                f"{execution.function_name}{{{execution.key}}} took longer than its Timeout of {limit}"
            ) from error
