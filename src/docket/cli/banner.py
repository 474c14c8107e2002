"""What a worker says of itself when it starts."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass

from docket._version import __version__
from docket.cli.logs import Format
from docket.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")


@dataclass(frozen=True)
class Introduction:
    """The worker, its docket and its server, for the first
    line of the log. The worker logs its tasks itself."""

    worker: str
    docket: str
    url: str
    engine: str
    concurrency: int

    def line(self) -> str:
        return (
            f"docket {__version__}: worker {self.worker!r} works on docket {self.docket!r} at {self.url} "
            f"({self.engine}), concurrency {self.concurrency}"
        )


def introduction(worker: Worker) -> Introduction:
    server = worker.docket.server
    return Introduction(
        worker.name,
        worker.docket.name,
        server.shown_url,
        f"{server.engine_name} {server.engine_version}",
        worker.concurrency,
    )


def announce(worker: Worker, format: Format) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    known = introduction(worker)
    if format is Format.RICH:
        # Loaded by name: panels are of use on a terminal only.
        importlib.import_module("docket.cli.rich_banner").show(known)
        return
    facts = {
        "docket.name": known.docket, "docket.worker": known.worker, "url": known.url, "engine": known.engine,
        "concurrency": known.concurrency,
    }  # fmt: skip
    logger.info("%s", known.line(), extra=facts)
