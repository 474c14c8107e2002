"""A fallback for tasks of unknown functions: it warns and completes them."""

from __future__ import annotations

import logging
from typing import Any

from docket.dependencies import current_execution

logger: logging.Logger = logging.getLogger("docket.worker")


async def default_fallback_task(*args: Any, **kwargs: Any) -> None:
    """Drops a task whose function the worker does not
    know, with a warning. The task ends COMPLETED.

    For `Worker(fallback_task=default_fallback_task)` and
    `--fallback-task docket.worker:default_fallback_task`. Without a fallback, such a task goes to a
    worker that knows its function, or waits for one.
    """
    execution = current_execution.get()
    logger.warning(
        "Unknown task %r received and dropped: register the function with the worker's docket, or give --tasks",
        execution.function_name,
        extra=execution.specific_labels(),
    )
