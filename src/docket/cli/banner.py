"""The banner of a worker: the first line of its log."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass

from docket._version import __version__
from docket.cli.logs import Format
from docket.worker import Worker

logger: logging.Logger = logging.getLogger("docket.worker")


@dataclass(frozen=True)
class Banner:
    """The worker, its docket and its server. The tasks are
    not part of the banner: the worker logs them itself."""

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


def banner(worker: Worker) -> Banner:
    server = worker.docket.server
    return Banner(
        worker.name,
        worker.docket.name,
        server.shown_url,
        f"{server.engine_name} {server.engine_version}",
        worker.concurrency,
    )


def announce(worker: Worker, format: Format | None) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    facts = banner(worker)
    if format is Format.RICH:
        # Imported lazily: only a terminal needs panels.
        importlib.import_module("docket.cli.rich_banner").show(facts)
        return
    extra = {
        "docket.name": facts.docket, "docket.worker": facts.worker, "url": facts.url, "engine": facts.engine,
        "concurrency": facts.concurrency,
    }  # fmt: skip
    logger.info("%s", facts.line(), extra=extra)
