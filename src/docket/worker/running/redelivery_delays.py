"""How long a task waits for its next delivery if it could not be settled properly: one of its
behaviours (a completion or failure handler) failed, or the worker cannot read it."""

from __future__ import annotations

FIRST_MS = 1000
# How many keys are remembered. The oldest are dropped first.
MOST_REMEMBERED = 1000


class RedeliveryDelays:
    """The delay is one second at first. It doubles with each further failure of the same task, up
    to the redelivery time-out."""

    def __init__(self, most_ms: float) -> None:
        self._most_ms = most_ms
        self._last_ms: dict[str, float] = {}

    def next_ms(self, key: str) -> float:
        last = self._last_ms.pop(key, None)
        delay = min(FIRST_MS if last is None else last * 2, self._most_ms)
        self._last_ms[key] = delay
        if len(self._last_ms) > MOST_REMEMBERED:
            del self._last_ms[next(iter(self._last_ms))]
        return delay
