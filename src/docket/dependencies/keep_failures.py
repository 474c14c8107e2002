"""How long the dead letters of a function are kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from uncalled_for import Dependency

from docket.execution import Execution
from docket.execution.context import WorkerContext
from docket.model.retention import check_age
from docket.model.times import duration_ms

from .plan import plan_for

if TYPE_CHECKING:
    from typing import Self


class KeepFailures(Dependency[Any]):
    """Keeps tasks of this function that failed for good for `age`, or not at all with 0.

    It takes precedence over the age in `Docket(keep_failures=…)`; the limits on the number and the
    bytes of all dead letters stay those of the docket. Raises TypeError or ValueError if the age is
    not valid.
    """

    single = True

    def __init__(self, age: timedelta | int) -> None:
        if isinstance(age, int) and age == 0:
            age = timedelta(0)
        self.age: timedelta = check_age("KeepFailures", age)

    def provide(self, execution: Execution, worker: WorkerContext) -> Self:
        """Itself: it has no state of a run."""
        return self

    async def __aenter__(self) -> Self:
        return self


def kept_age_ms(function: Any) -> int | None:
    """The age that the function declares, or None."""
    declared = plan_for(function).single(KeepFailures)
    return None if declared is None else duration_ms(declared.age)


def kept_ages(tasks: Mapping[str, Any]) -> dict[str, int]:
    """The ages of the functions that declare one, by task name."""
    ages = {name: kept_age_ms(function) for name, function in tasks.items()}
    return {name: age for name, age in ages.items() if age is not None}
