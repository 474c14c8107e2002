"""Notes when this process did not get to run, which no fault of ours explains: a busy machine."""

from __future__ import annotations

import threading
import time

from .histories import History

TICK_SECONDS = 0.1
# Shorter delays are usual and harmless.
LEAST_SECONDS = 0.3


def watch_for_stalls(history: History) -> None:
    """Starts a thread that writes a `stalled` event when its clock jumps. The thread ends with the
    process."""
    threading.Thread(target=_watch, args=(history,), name="stalls", daemon=True).start()


def _watch(history: History) -> None:
    before = time.monotonic()
    while True:
        time.sleep(TICK_SECONDS)
        now = time.monotonic()
        if now - before - TICK_SECONDS > LEAST_SECONDS:
            history.write("stalled", seconds=round(now - before, 3))
        before = now
