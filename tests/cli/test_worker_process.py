"""A worker process that ends before it handles signals. A Ctrl-C reaches it that early if it has
not left the process group of its supervisor yet."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from docket.cli.support.supervisor import Supervisor
from docket.cli.support.worker_options import WorkerOptions

KILLED_BY_CTRL_C = "import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)"

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="asyncio would notice the end in a thread")


def wait_for_end(pid: int) -> None:
    """Blocks, so the event loop does not know of the end yet."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture(autouse=True)
def notices_ends_in_the_event_loop() -> Iterator[None]:
    """As Python 3.12 does."""
    if sys.version_info >= (3, 12):
        yield
        return
    policy = asyncio.get_event_loop_policy()
    before = policy.get_child_watcher()
    policy.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    policy.set_child_watcher(before)


def test_a_process_that_ended_before_it_was_told_to_stop_has_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = asyncio.create_subprocess_exec

    async def start_and_stop(*command: str, **options: Any) -> asyncio.subprocess.Process:
        os.kill(os.getpid(), signal.SIGTERM)
        process = await start(sys.executable, "-c", KILLED_BY_CTRL_C, **options)
        wait_for_end(process.pid)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_stop)
    assert Supervisor(WorkerOptions(worker={"name": "early"}), processes=1).run() == 0
    assert "will report returncode 255" not in caplog.text
