"""The number of losses after which docket buries a task of a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uncalled_for import Dependency

from docket.execution import Execution
from docket.execution.context import WorkerContext
from docket.model.bounds import check_max_losses

from .plan import plan_for

if TYPE_CHECKING:
    from typing import Self


class MaxLosses(Dependency[Any]):
    """Buries a task after `count` losses, if it was the only run of its worker at the last loss.

    It takes precedence over `Docket(max_losses=…)`. Workers that were asked to stop do not count as
    losses. Raises ValueError if `count` is not from 1 to 127.
    """

    single = True

    def __init__(self, count: int) -> None:
        self.count: int = check_max_losses("MaxLosses", count)

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """Itself: it has no state of a run."""
        return self

    async def __aenter__(self) -> Self:
        return self


def max_losses_of(tasks: Mapping[str, Any]) -> dict[str, int]:
    """The counts of the functions that declare one, by task name."""
    declared = {name: plan_for(function).single(MaxLosses) for name, function in tasks.items()}
    return {name: found.count for name, found in declared.items() if found is not None}
