"""The runs of all workers of this process: a task that kills its process kills them all."""

from __future__ import annotations

import threading
import weakref

from .runs import Runs


class ProcessRuns:
    """Which bodies live in this process, and whether one worker has the process to itself.

    Workers may run in different threads. A worker that begins a run adds it to its runs first and
    asks whether it is kept out then; a worker that wants the process says so first and looks for
    runs then. So one of the two notices the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A body that was left behind keeps its worker's runs alive.
        self._all: weakref.WeakSet[Runs] = weakref.WeakSet()
        self._holder: weakref.ref[Runs] | None = None

    def add(self, runs: Runs) -> None:
        with self._lock:
            self._all.add(runs)

    def others_live(self, runs: Runs) -> bool:
        """Whether a body of another worker lives."""
        return len(self._all) > 1 and any(_bodies(other) for other in self._snapshot() if other is not runs)

    def any_lives(self) -> bool:
        return any(_bodies(runs) for runs in self._snapshot())

    def any_ignores_its_cancel(self) -> bool:
        """Whether a body lives that should have ended: nobody knows when it will."""
        return any(run.reason is not None for runs in self._snapshot() for run in runs.all() if not run.over)

    def hold(self, runs: Runs) -> bool:
        """From now on the other workers of this process begin
        nothing. False if another worker was quicker."""
        with self._lock:
            if self.keeps_out(runs):
                return False
            self._holder = weakref.ref(runs)
            return True

    def release(self, runs: Runs) -> None:
        with self._lock:
            if self._holder is not None and self._holder() in (runs, None):
                self._holder = None

    def keeps_out(self, runs: Runs) -> bool:
        """Whether another worker has the process to itself."""
        holder = self._holder
        return holder is not None and holder() not in (runs, None)

    def _snapshot(self) -> list[Runs]:
        with self._lock:
            return list(self._all)


def _bodies(runs: Runs) -> bool:
    return any(not run.over for run in runs.all())


_THIS_PROCESS = ProcessRuns()


def this_process() -> ProcessRuns:
    return _THIS_PROCESS
