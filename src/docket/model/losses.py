"""The number of losses after which docket buries a task."""

from __future__ import annotations

from typing import Any

# The default. A task with this many losses is buried if
# it was the only run of its worker at the last loss.
MAX_LOSSES = 3
# A task record has seven bits for the count.
MOST_LOSSES = 127


def check_max_losses(what: str, count: Any) -> int:
    """Returns the count. Raises a TypeError or ValueError
    that names the setting if the count is not valid."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{what}: a number of losses is an int, not {type(count).__name__}")
    if not 1 <= count <= MOST_LOSSES:
        raise ValueError(f"{what}: {count} must be from 1 to {MOST_LOSSES}")
    return count
