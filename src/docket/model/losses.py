"""How many lost workers bury a task."""

from __future__ import annotations

from typing import Any

# A task that lost its worker so often, the last time as its only run, is buried.
MAX_LOSSES = 3
# A task record has seven bits for the count.
MOST_LOSSES = 127


def check_max_losses(what: str, count: Any) -> int:
    """The count. Raises TypeError or ValueError, naming
    the setting, if a task cannot be lost so often."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{what}: a number of losses is an int, not {type(count).__name__}")
    if not 1 <= count <= MOST_LOSSES:
        raise ValueError(f"{what}: {count} is not from 1 to {MOST_LOSSES}")
    return count
