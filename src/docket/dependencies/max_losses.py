"""How many lost workers bury a task of this function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uncalled_for import Dependency

from docket.model.losses import check_max_losses

from .plan import plan_for
from .worker_view import WorkerView

if TYPE_CHECKING:
    from typing import Self

    from docket.execution import Execution


class MaxLosses(Dependency[Any]):
    """Buries a task that lost its worker `count` times,
    the last time as the only run of that worker.

    It goes before `Docket(max_losses=…)`. Workers that were told to stop do not count. Raises
    ValueError if `count` is not from 1 to 127.
    """

    single = True

    def __init__(self, count: int) -> None:
        self.count: int = check_max_losses("MaxLosses", count)

    def provide(self, execution: Execution, worker: WorkerView) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self


def max_losses_of(tasks: Mapping[str, Any]) -> dict[str, int]:
    """The counts of those functions that declare one, by task name."""
    declared = {name: plan_for(function).single(MaxLosses) for name, function in tasks.items()}
    return {name: found.count for name, found in declared.items() if found is not None}
