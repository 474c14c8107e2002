"""Where a task is, as people see it: the places, how many tasks each has, and its words."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from .states import ExecutionState


class Place(enum.StrEnum):
    """Where a task is. READY, PARKED, UNKNOWN_FUNCTION and HELD are the state QUEUED."""

    RUNNING = "running"
    READY = "ready"
    PARKED = "parked"
    UNKNOWN_FUNCTION = "unknown_function"
    HELD = "held"
    SCHEDULED = "scheduled"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def state(self) -> ExecutionState:
        return _STATES[self]

    @property
    def is_finished(self) -> bool:
        return self.state.finished


# A place that is not named after a state is a part of QUEUED.
_STATES = {
    place: next((state for state in ExecutionState if state.value == place.value), ExecutionState.QUEUED)
    for place in Place
}
UNFINISHED_PLACES = tuple(place for place in Place if not place.is_finished)
QUEUED_PLACES = tuple(place for place in Place if place.state is ExecutionState.QUEUED)
# Places that are nearly always empty: views show them when they are not.
RARE_PLACES = tuple(place for place in QUEUED_PLACES if place is not Place.READY)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceCounts:
    """How many unfinished tasks there are, by where they are: a field for each place."""

    running: int
    # On a stream: the next free slot of a worker takes them.
    ready: int
    # Wait for a slot of a limit.
    parked: int
    # Wait for a worker that knows their function.
    unknown: int
    # Held by a pause.
    held: int
    scheduled: int

    @property
    def queued(self) -> int:
        return sum(self.at(place) for place in QUEUED_PLACES)

    def at(self, place: Place) -> int:
        """The number of tasks in a place of unfinished tasks."""
        return getattr(self, words_of(place).field)


class PlaceWords(NamedTuple):
    """The words of a place, where they differ from its value."""

    # The field of `PlaceCounts`.
    field: str
    # The field of a command's JSON.
    json: str
    # Of its tasks, one task, so many tasks now, and so many tasks at some time.
    many: str
    one: str
    now: str
    past: str


_WORDS = {
    Place.PARKED: PlaceWords(
        field="parked",
        json="waiting_for_a_limit",
        many="wait for a limit",
        one="waits for a limit",
        now="waiting for a limit",
        past="waited for a limit",
    ),
    Place.UNKNOWN_FUNCTION: PlaceWords(
        field="unknown",
        json="unknown_function",
        many="function unknown",
        one="function unknown",
        now="with an unknown function",
        past="waited for a worker that knows their function",
    ),
    Place.HELD: PlaceWords(field="held", json="held", many="held", one="held", now="held", past="were held by a pause"),
}


def words_of(place: Place) -> PlaceWords:
    return _WORDS.get(place) or PlaceWords(*[place.value] * 6)
