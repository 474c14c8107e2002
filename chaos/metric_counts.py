"""The counts of the metrics of this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docket.instrumentation import instruments as metrics

PREFIX = "docket_tasks_"
ABANDONED = "docket_threads_abandoned"


class MetricCounts:
    """The totals of docket's counters of tasks in this process, by name without the prefix
    `docket_tasks_`, and the number of abandoned threads."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}
        for instrument in metrics.instruments():
            if instrument.name.startswith(PREFIX) or instrument.name == ABANDONED:
                instrument.mirror = self._mirror(instrument.name.removeprefix(PREFIX))

    def _mirror(self, name: str) -> metrics.Record:
        def count(amount: Any, attributes: Mapping[str, str]) -> None:
            self.totals[name] = self.totals.get(name, 0) + amount

        return count
