"""Tasks that harm their worker. The nemesis adds them, so they have no share of the load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from docket import CurrentExecution, Execution

from .base import COMPLETED, FAILED, Work
from .body import body, note


async def kill_process(token: str) -> None:
    """Takes its process along, every time."""
    with body(token):
        # The tasks beside it must be under way when this happens.
        await asyncio.sleep(0.05)
        _kill()


async def kill_process_once(token: str, execution: Execution = CurrentExecution()) -> None:
    """Takes its process along the first time."""
    with body(token):
        if not execution.redelivered:
            _kill()


async def block_loop(token: str, seconds: float) -> None:
    """Holds up the event loop."""
    with body(token):
        time.sleep(seconds)  # noqa: ASYNC251


def _kill() -> None:
    note("suicide")
    os.kill(os.getpid(), signal.SIGKILL)


class Harmful(Work):
    name = "harmful"
    functions = (kill_process, kill_process_once, block_loop)

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        return {FAILED} if function == "kill_process" else {COMPLETED}
