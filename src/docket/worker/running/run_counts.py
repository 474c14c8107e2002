"""Counts runs for `run_at_most`, which says how often each key may run."""

from __future__ import annotations

from collections.abc import Mapping

SPENT = "run_at_most allows no further run"


class RunCounts:
    """Counts the runs of the keys that `run_at_most` names."""

    def __init__(self, most: Mapping[str, int]) -> None:
        self._most = most
        self._begun = dict.fromkeys(most, 0)

    def count(self, key: str) -> None:
        if key in self._begun:
            self._begun[key] += 1

    def take_back(self, key: str) -> None:
        """Uncounts a run that was not admitted and comes back."""
        if key in self._begun:
            self._begun[key] -= 1

    def is_spent(self, key: str) -> bool:
        """Whether the key has used up its runs."""
        return key in self._most and self._begun[key] >= self._most[key]
