"""The runs of all workers of this process: a task that kills its process kills them all."""

from __future__ import annotations

import threading
import weakref

from docket.worker.running.runs import Runs


class ProcessRuns:
    """Knows which bodies run in this process, and whether one worker has the process to itself.

    Workers may run in different threads. A worker that begins a run first adds it to its runs, and
    then checks whether it is kept out. A worker that wants the process first takes hold of it, and
    then checks for runs. So at least one of the two notices the other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A weak set is enough: a body that still runs keeps the runs of its worker alive.
        self._all: weakref.WeakSet[Runs] = weakref.WeakSet()
        self._holder: weakref.ref[Runs] | None = None

    def add(self, runs: Runs) -> None:
        with self._lock:
            self._all.add(runs)

    def others_live(self, runs: Runs) -> bool:
        """Whether a body of another worker runs."""
        return len(self._all) > 1 and any(_bodies(other) for other in self._snapshot() if other is not runs)

    def any_lives(self) -> bool:
        return any(_bodies(runs) for runs in self._snapshot())

    def any_ignores_its_cancel(self) -> bool:
        """Whether a cancelled body still runs. Such a body may never end."""
        return any(
            runs.abandoned or any(run.reason is not None for run in runs.all() if not run.over)
            for runs in self._snapshot()
        )

    def hold(self, runs: Runs) -> bool:
        """Keeps the other workers of this process from beginning runs. False if another worker
        already holds the process."""
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
    return runs.abandoned > 0 or any(not run.over for run in runs.all())


_THIS_PROCESS = ProcessRuns()


def this_process() -> ProcessRuns:
    return _THIS_PROCESS
