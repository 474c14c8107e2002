"""Tasks that this worker cannot run, but another worker may: of a newer release, sealed with a key
that this worker does not have, or for a child process that the system cannot start."""

from __future__ import annotations

import logging
import random
import time

from docket.worker.running.redelivery_delays import RedeliveryDelays
from docket.worker.running.slots import Slots

logger: logging.Logger = logging.getLogger("docket.worker")

LONGEST_MS = 60_000
# If many such tasks wait, this worker gives back one of them in this time.
PACE_SECONDS = 0.005
LONGEST_PACE_MS = 600_000
# The server delivers a task to the worker that offered a slot last. A worker that cannot read the
# task is ready again at once, so it would get the task again and again.
NO_OFFERS_SECONDS = 5.0
# How many keys are remembered for a worker that has to end.
MOST_KEYS = 100_000
# How many different reasons are logged. Whoever writes records could invent any number.
MOST_REASONS = 100


class LeftTasks:
    """Decides how long a task that was left waits until its next delivery. Logs each reason once,
    not once per task."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        # How often each task was left that this worker cannot read.
        self._times: dict[str, int] = {}
        self._delays = RedeliveryDelays(LONGEST_MS)
        self._reasons: set[str] = set()
        self._paced_until = 0.0

    def delay_ms(self, key: str, reason: str) -> float:
        """A second at first, then twice as long each time, up to a minute; less a random part, so
        that tasks do not come back together. Longer if there are very many such tasks: neither the
        worker nor the server should be busy with them."""
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            logger.warning("task %r and others like it are left for other workers: %s", key, reason)
        now = time.monotonic()
        self._slots.offers_from = now + NO_OFFERS_SECONDS
        self._paced_until = max(self._paced_until, now) + PACE_SECONDS
        pace_ms = min((self._paced_until - now) * 1000, LONGEST_PACE_MS)
        return max(self._delays.next_ms(key) * random.uniform(0.5, 1), pace_ms)

    def note_unreadable(self, key: str) -> None:
        """This worker can never run the task."""
        if key in self._times or len(self._times) < MOST_KEYS:
            self._times[key] = self._times.get(key, 0) + 1

    @property
    def count(self) -> int:
        """How many tasks this worker could not read, those that have ended since included."""
        return len(self._times)

    def forget_except(self, keys: set[str]) -> None:
        """The tasks of all other keys have ended."""
        self._times = {key: times for key, times in self._times.items() if key in keys}

    def has_left(self, keys: set[str], times: int) -> bool:
        """Whether each of these tasks was left at least this many times."""
        return all(self._times.get(key, 0) >= times for key in keys)
