"""Compares the observations of two environments with the table of deliberate differences."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

MISSING = "<nothing>"


@dataclass(frozen=True)
class Deliberate:
    """A row of the table in docs/pydocket.md, and the
    observations in which it shows (with `*` as in file names)."""

    row: str
    observations: tuple[str, ...]

    def covers(self, observation: str) -> bool:
        return any(fnmatchcase(observation, pattern) for pattern in self.observations)


@dataclass(frozen=True)
class Difference:
    observation: str
    theirs: Any
    ours: Any
    row: str | None


@dataclass
class Comparison:
    compared: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])
    # Patterns of the table that no difference matched: the two agree there by now.
    unused: list[str] = field(default_factory=list[str])
    # Rows that differences.toml names and docs/pydocket.md does not have.
    undocumented: list[str] = field(default_factory=list[str])

    @property
    def unexplained(self) -> list[Difference]:
        return [difference for difference in self.differences if difference.row is None]


def read_observations(file: Path) -> dict[str, Any]:
    return dict(json.loads(line) for line in file.read_text("utf-8").splitlines())


def read_deliberate(file: Path) -> list[Deliberate]:
    entries = tomllib.loads(file.read_text("utf-8"))["difference"]
    return [Deliberate(entry["row"], tuple(entry["observations"])) for entry in entries]


def compare(theirs: dict[str, Any], ours: dict[str, Any], deliberate: list[Deliberate], table: str) -> Comparison:
    """Whatever pydocket shows must be the same in docket.
    Observations that only docket makes are additions."""
    comparison = Comparison(compared=len(theirs))
    for observation, value in theirs.items():
        mine = ours.get(observation, MISSING)
        if _differs(observation, value, mine) and not _is_part_of_a_missing_name(observation, ours):
            row = next((entry.row for entry in deliberate if entry.covers(observation)), None)
            comparison.differences.append(Difference(observation, value, mine, row))
    differing = [difference.observation for difference in comparison.differences]
    comparison.unused = [
        pattern
        for entry in deliberate
        for pattern in entry.observations
        if not any(fnmatchcase(observation, pattern) for observation in differing)
    ]
    comparison.undocumented = [entry.row for entry in deliberate if f"| {entry.row} |" not in table]
    return comparison


def _differs(observation: str, theirs: Any, ours: Any) -> bool:
    if observation.endswith(".required") and ours != MISSING:
        return not set(ours) <= set(theirs)  # an optional parameter instead of a required one breaks no call
    if theirs == "keyword_only" and ours == "positional_or_keyword":
        return False
    return ours != theirs


def _is_part_of_a_missing_name(observation: str, ours: dict[str, Any]) -> bool:
    """A function that is missing is one difference: its parameters are not counted again."""
    owner = observation.removesuffix(".required").partition(".(")[0]
    return owner != observation and f"{owner}.callable" not in ours
