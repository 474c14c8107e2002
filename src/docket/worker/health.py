"""Whether a worker is healthy: it claims and renews, and its event loop responds."""

from __future__ import annotations

import time

from .parts import Parts

# A loop that does not respond for this long counts as blocked.
LOOP_SECONDS = 5.0


def health_problem(parts: Parts) -> str | None:
    """Why a worker that has begun to work is unhealthy, or None. Safe to call from any thread."""
    if parts.session.is_stopping:
        return "stopping: the worker takes no new work"
    registration = parts.registration
    lag = registration.renewer.watchdog.loop_lag
    if lag > LOOP_SECONDS:
        return f"the event loop has been blocked for {lag:.0f} s"
    if registration.lapsed:
        return f"the lease has not been renewed for {registration.lease.age:.0f} s"
    return _stuck_work(parts) or _abandoned_threads(parts) or _no_children(parts) or _failing_service(parts)


def _stuck_work(parts: Parts) -> str | None:
    """Renewals may succeed while large values do not get through, as on a slow link."""
    longest, now = parts.lease_ms / 1000, time.monotonic()
    storing = [now - run.storing_since for run in parts.runs.all() if run.storing_since is not None]
    unsettled = max(parts.settlement_writer.oldest_age, *storing, 0.0)
    if unsettled > longest:
        return f"an ending has waited for {unsettled:.0f} s to be written"
    unstarted = parts.runner.loader.oldest_age
    if unstarted > longest:
        return f"a claimed task has waited for {unstarted:.0f} s for its arguments"
    return None


def _abandoned_threads(parts: Parts) -> str | None:
    """A thread cannot be stopped, so only a new process gets its slot back."""
    threads = parts.threads
    if threads.abandoned * 2 > threads.count:
        return f"{threads.abandoned} of {threads.count} threads go on although their run was given up"
    return None


def _no_children(parts: Parts) -> str | None:
    problem = parts.children.problem
    return None if problem is None else f"no child process can be started: {problem}"


def _failing_service(parts: Parts) -> str | None:
    for service in (parts.fetcher, parts.runner.loader, parts.stager):
        if service.problem is not None:
            return f"{service.name} fails"
    return None
