"""What was counted, without an OpenTelemetry SDK."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from docket.instrumentation import instruments as metrics


class MetricTotals:
    """What was counted, by instrument, for one docket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, docket: str) -> None:
        self.counted: dict[str, float] = {}
        # How many durations were recorded.
        self.measured = 0
        self.superseded: dict[str, float] = {}
        for instrument in metrics.instruments():
            monkeypatch.setattr(instrument, "mirror", self._mirror(instrument.name, docket))

    def _mirror(self, name: str, docket: str) -> Callable[[float, Mapping[str, Any]], None]:
        def note(amount: float, attributes: Mapping[str, Any]) -> None:
            if attributes.get("docket.name") != docket:
                return
            where = attributes.get("docket.where", "")
            if name == "docket_tasks_superseded":
                self.superseded[where] = self.superseded.get(where, 0) + amount
            if name == "docket_task_duration":
                self.measured += 1
            key = f"{name}@{where}" if where else name
            self.counted[key] = self.counted.get(key, 0) + amount

        return note

    def __getitem__(self, name: str) -> float:
        return self.counted.get(f"docket_tasks_{name}", 0)
