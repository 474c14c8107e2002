"""What a worker says of itself when it starts."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass

from docket._version import __version__
from docket.cli.logs import Format
from docket.execution import compact_signature
from docket.execution.display import resolved_signature
from docket.worker import Worker

logger = logging.getLogger("docket.worker")


@dataclass(frozen=True)
class Introduction:
    """Who works where, with what."""

    worker: str
    docket: str
    url: str
    engine: str
    concurrency: int
    tasks: tuple[str, ...]

    def lines(self) -> list[str]:
        return [
            f"docket {__version__}: worker {self.worker!r} starts on docket {self.docket!r}, "
            f"concurrency {self.concurrency}, at {self.url} ({self.engine}), with these tasks:",
            *(f"* {task}" for task in self.tasks),
        ]


def introduction(worker: Worker) -> Introduction:
    server = worker.docket.server
    return Introduction(
        worker.name,
        worker.docket.name,
        server.shown_url,
        f"{server.engine_name} {server.engine_version}",
        worker.concurrency,
        tuple(
            f"{name}({compact_signature(resolved_signature(function))})"
            for name, function in worker.docket.tasks.items()
        ),
    )


def announce(worker: Worker, format: Format) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    known = introduction(worker)
    if format is Format.RICH:
        # Loaded by name: panels are of use on a terminal only.
        importlib.import_module("docket.cli.rich_banner").show(known)
    elif format is Format.JSON:
        facts = {
            "docket.name": known.docket, "docket.worker": known.worker, "url": known.url, "engine": known.engine,
            "concurrency": known.concurrency, "tasks": known.tasks,
        }  # fmt: skip
        logger.info("worker %r starts", known.worker, extra=facts)
    else:
        for line in known.lines():
            logger.info("%s", line)
