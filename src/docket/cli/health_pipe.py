"""Reports the health of a supervised worker: one line a second through a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable

REPORT_SECONDS = 1.0


class HealthPipe:
    """Writes the worker's health from its own thread, so that reports go on while the event loop is
    blocked.

    A supervisor that is gone can no longer forward signals.
    The worker then stops, as after a SIGTERM.
    """

    def __init__(
        self, pipe: int, problem: Callable[[], str | None], recycle: Callable[[], str | None] = lambda: None
    ) -> None:
        self._pipe = pipe
        self._problem = problem
        # Why this process should be replaced, if it should.
        self._recycle = recycle
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="docket - reporting", daemon=True)

    def start(self) -> None:
        os.set_inheritable(self._pipe, False)
        os.set_blocking(self._pipe, False)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        # Frequent at first: the supervisor waits for the start of the worker.
        pause = 0.05
        while not self._stopped.wait(pause):
            problem = self._problem()
            pause = REPORT_SECONDS if problem is None else min(pause * 2, REPORT_SECONDS)
            try:
                # If the pipe is full, drop this report: the next one replaces it.
                with contextlib.suppress(BlockingIOError):
                    report = {"problem": problem, "recycle": self._recycle()}
                    os.write(self._pipe, json.dumps(report).encode() + b"\n")
            except OSError:
                os.kill(os.getpid(), signal.SIGTERM)
                return
