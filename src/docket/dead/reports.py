"""The report about a batch of letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from docket.ledger.letters import Retried

WHY = {
    Retried.KEY_TAKEN: "its key has an unfinished task",
    Retried.PAYLOAD_GONE: "its arguments are gone",
    Retried.DAMAGED: "its record is damaged",
}
_MOST_IDS = 1_000


@dataclass(slots=True)
class Report:
    """The result of a batch: how many letters matched, how many were retried or discarded, and how
    many were skipped, by the reason, and the ids of the first thousand of them.

    `gone` letters were retried, discarded or dropped by somebody else in the meantime. `left`
    letters matched and were not tried, because of `most`. With `mark` the same call, repeated,
    concerns no letters that came later. `chains` counts automatic tasks that workers start again
    although their letter is gone.
    """

    mark: int
    matched: int = 0
    retried: int = 0
    discarded: int = 0
    gone: int = 0
    left: int = 0
    chains: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    skipped_ids: list[int] = field(default_factory=list[int])

    def skip(self, id: int, why: Retried) -> None:
        """Counts a letter that was not retried."""
        if why is Retried.GONE:
            self.gone += 1
            return
        self.skipped[WHY[why]] = self.skipped.get(WHY[why], 0) + 1
        if len(self.skipped_ids) < _MOST_IDS:
            self.skipped_ids.append(id)

    def add(self, other: Report) -> None:
        """Adds the numbers of another batch."""
        for name in ("matched", "retried", "discarded", "gone", "left", "chains"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for why, count in other.skipped.items():
            self.skipped[why] = self.skipped.get(why, 0) + count
        self.skipped_ids = [*self.skipped_ids, *other.skipped_ids][:_MOST_IDS]

    def as_json(self) -> dict[str, Any]:
        """All counts, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}
