"""What a worker reports about itself with its renewals (docs/design/web.md)."""

from __future__ import annotations

import os
import platform
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from docket._version import __version__
from docket.child.memory import memory_in_use
from docket.ledger.reports import WorkerReport

if TYPE_CHECKING:
    from docket.worker.parts import Parts

# A renewal carries a report if the last one is as old as this. An idle worker has less to report.
EVERY_SECONDS = 5.0
IDLE_EVERY_SECONDS = 20.0


class SelfReport:
    """Makes the reports of one worker, in the thread that renews
    its lease. It only reads numbers, so it needs no lock."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._host = socket.gethostname()
        self._python = platform.python_version()
        self._began = datetime.now(UTC)

    def make(self, lag: float) -> bytes:
        """The report. `lag` is how long the event loop took to answer, in seconds."""
        parts = self._parts
        threads, children = parts.threads, parts.children
        return WorkerReport(
            host=self._host,
            version=__version__,
            python=self._python,
            pid=os.getpid(),
            at=datetime.now(UTC),
            started_at=self._began,
            slots=parts.slots.count,
            runs=len(parts.runs),
            threads=threads.count,
            threads_busy=threads.busy,
            children=children.count,
            children_busy=children.busy,
            abandoned=parts.runs.abandoned,
            memory=memory_in_use(),
            lag=lag,
        ).pack()
