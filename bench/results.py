"""The results: samples per measure and system, and reasons for missing ones."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.driving import NotSupported, SessionFailed
from bench.figures import median
from bench.measures import MEASURES

SAMPLES = dict[str, dict[str, list[float]]]
NOTES = dict[str, dict[str, str]]


def _no_samples() -> SAMPLES:
    return {}


def _no_notes() -> NOTES:
    return {}


@dataclass
class Results:
    """`samples[measure][system]` has one value per round;
    `failures` and `gaps` say why there is none."""

    about: dict[str, str]
    versions: dict[str, dict[str, str]]
    settings: dict[str, str]
    samples: SAMPLES = field(default_factory=_no_samples)
    failures: NOTES = field(default_factory=_no_notes)
    gaps: NOTES = field(default_factory=_no_notes)

    def add(self, measure: str, system: str, value: float) -> None:
        self.samples.setdefault(measure, {}).setdefault(system, []).append(value)

    def fail(self, measure: str, system: str, reason: str) -> None:
        self.failures.setdefault(measure, {})[system] = reason

    def leave_out(self, measure: str, system: str, reason: str) -> None:
        self.gaps.setdefault(measure, {})[system] = reason

    def median(self, measure: str, system: str) -> float | None:
        values = self.samples.get(measure, {}).get(system)
        return median(values) if values else None

    def best(self, measure: str, system: str) -> float | None:
        values = self.samples.get(measure, {}).get(system)
        return MEASURES[measure].best(values) if values else None

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return cls(**stored)


class Recorder:
    """Writes down one session of one system."""

    def __init__(self, results: Results, system: str, measures: tuple[str, ...]) -> None:
        self._results = results
        self._system = system
        self._measures = measures
        self._settled: set[str] = set()

    def add(self, measure: str, value: float) -> None:
        self._settled.add(measure)
        self._results.add(measure, self._system, value)

    @contextmanager
    def attempt(self, *measures: str) -> Generator[None, None, None]:
        """What goes wrong inside concerns these measures
        only; without any named, all that are still open."""
        try:
            yield
        except (SessionFailed, NotSupported) as error:
            write = self._results.fail if isinstance(error, SessionFailed) else self._results.leave_out
            for measure in measures or self._measures:
                if measure not in self._settled:
                    self._settled.add(measure)
                    write(measure, self._system, str(error))
