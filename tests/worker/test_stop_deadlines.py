"""A server that does not answer cannot keep a worker process: it ends within five seconds after the
grace period. The worker itself uses four and a half of them, so that the interpreter and the
supervisor have time to exit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from docket.attached import AttachedWorkers
from docket.worker import session
from docket.worker.session import WorkerSession

PROMISED_SECONDS, EXIT_SECONDS = 5.0, 0.5


class FrozenTime:
    """A clock that only the test moves, in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def make_session(monkeypatch: pytest.MonkeyPatch) -> tuple[WorkerSession, FrozenTime]:
    clock = FrozenTime()
    monkeypatch.setattr(session, "time", clock)
    return WorkerSession(lambda: None, AttachedWorkers()), clock


async def test_an_idle_worker_ends_in_time_although_every_wait_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, clock = make_session(monkeypatch)
    stopping.begin_stop()
    began = clock.now
    while not stopping.services_are_late():
        clock.now += 0.01
    clock.now += stopping.seconds_to_withdraw()
    clock.now += stopping.seconds_to_leave()
    assert clock.now - began <= PROMISED_SECONDS - EXIT_SECONDS + 0.01


@pytest.mark.parametrize("seconds", [session.USUAL.bodies, session.USUAL.endings])
async def test_a_worker_whose_tasks_do_not_end_leaves_in_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    stopping, clock = make_session(monkeypatch)
    requeued_at = clock.now + 60
    draining: Any = SimpleNamespace(requeued_at=requeued_at, begin=lambda: None, bodies=())
    stopping.begin(draining)
    stopping.begin_stop()
    clock.now = requeued_at + seconds
    clock.now += stopping.seconds_to_leave()
    assert clock.now - requeued_at <= PROMISED_SECONDS - EXIT_SECONDS + 0.01
