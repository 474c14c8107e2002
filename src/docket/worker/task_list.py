"""The first lines of a worker's log: its name and its tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from docket.execution import compact_signature
from docket.execution.arguments import resolved_signature

logger: logging.Logger = logging.getLogger("docket.worker")


def log_start(worker: str, tasks: Mapping[str, Callable[..., Any]], labels: Mapping[str, str]) -> None:
    """One line for the worker, and one for each task."""
    if not logger.isEnabledFor(logging.INFO):
        return
    logger.info("Starting worker %r with the following tasks:", worker, extra=dict(labels))
    for name, function in tasks.items():
        logger.info("* %s(%s)", name, _signature(function), extra=dict(labels))


def _signature(function: Callable[..., Any]) -> str:
    try:
        return compact_signature(resolved_signature(function))
    except Exception:
        # A signature that cannot be shown must not stop the worker.
        return "..."
