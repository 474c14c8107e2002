"""Whether a worker really works: it claims, renews and its event loop turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import Worker

# A loop that owes an answer for this long is blocked.
LOOP_SECONDS = 5.0


def health_problem(worker: Worker) -> str | None:
    """Why the worker is not well, or None. Safe to call from any thread."""
    if not worker.is_working:
        return "starting" if not worker.is_stopping else "stopped"
    if worker.is_stopping:
        return "stopping: no new work is taken"
    lag = worker.keeper.loop_lag
    if lag > LOOP_SECONDS:
        return f"the event loop has been blocked for {lag:.0f} s"
    if worker.keeper.lapsed:
        return f"the lease has not been renewed for {worker.keeper.age:.0f} s"
    for service in (worker.fetcher, worker.stager):
        if service.problem is not None:
            return f"{service.name} fails"
    return None


def readiness_problem(worker: Worker) -> str | None:
    """Why the worker takes no work yet, or any more."""
    return None if worker.is_working and not worker.is_stopping else "not ready"
