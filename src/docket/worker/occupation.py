"""What a worker is at, for its renewal thread."""

from __future__ import annotations

from typing import NamedTuple


class Occupation(NamedTuple):
    """How many runs the worker has, whether it offers a slot, whether it stops, and on which
    connection it waits for work."""

    runs: int
    has_offer: bool
    stopping: bool
    reading: int | None = None
