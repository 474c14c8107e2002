"""Built-in tasks, known to every docket: for trying things out and for smoke tests."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from docket.annotations import Logged
from docket.dependencies import TaskLogger


async def trace(message: Annotated[str, Logged], logger: logging.LoggerAdapter[logging.Logger] = TaskLogger()) -> None:
    """Logs a message."""
    logger.info("%s", message)


async def fail(message: Annotated[str, Logged], logger: logging.LoggerAdapter[logging.Logger] = TaskLogger()) -> None:
    """Fails with a message."""
    raise RuntimeError(message)


async def sleep(
    seconds: Annotated[float, Logged], logger: logging.LoggerAdapter[logging.Logger] = TaskLogger()
) -> None:
    """Sleeps for a while."""
    logger.info("Sleeping for %s seconds", seconds)
    await asyncio.sleep(seconds)


standard_tasks = [trace, fail, sleep]
