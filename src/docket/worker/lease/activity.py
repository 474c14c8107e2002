"""The worker's current activity, as its renewal thread reports it to the server."""

from __future__ import annotations

from typing import NamedTuple


class Activity(NamedTuple):
    """How many runs the worker has, whether it offers a slot, whether it is stopping, and the id of
    the connection on which it waits for work."""

    runs: int
    has_offer: bool
    stopping: bool
    reading: int | None = None
