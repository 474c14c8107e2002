"""Built-in tasks that every docket knows, for first steps and for smoke tests."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from docket.annotations import Logged
from docket.dependencies import CurrentDocket, CurrentExecution, CurrentWorker, Retry, TaskLogger, WorkerContext
from docket.execution import Execution, TaskFunction
from docket.execution.context import DocketContext

Logger = logging.LoggerAdapter[logging.Logger]


async def trace(
    message: Annotated[str, Logged],
    logger: Logger = TaskLogger(),
    docket: DocketContext = CurrentDocket(),
    worker: WorkerContext = CurrentWorker(),
    execution: Execution = CurrentExecution(),
) -> None:
    """Logs a message with its key, docket and worker."""
    logger.info("%s: %s", message, _way(docket, worker, execution))


async def fail(
    message: Annotated[str, Logged],
    docket: DocketContext = CurrentDocket(),
    worker: WorkerContext = CurrentWorker(),
    execution: Execution = CurrentExecution(),
    retry: Retry = Retry(attempts=2),
) -> None:
    """Fails with a message. One retry follows, which fails, too."""
    raise RuntimeError(f"{message}: {_way(docket, worker, execution)}, attempt {retry.attempt}")


async def sleep(seconds: Annotated[float, Logged], logger: Logger = TaskLogger()) -> None:
    """Sleeps for a while."""
    logger.info("Sleeping for %s seconds", seconds)
    await asyncio.sleep(seconds)


def _way(docket: DocketContext, worker: WorkerContext, execution: Execution) -> str:
    late = max((docket.now() - execution.when).total_seconds(), 0.0)
    return f"{execution.key!r} on docket {docket.name!r}, due {late:.3f} s ago, runs on worker {worker.name!r}"


standard_tasks: list[TaskFunction] = [trace, fail, sleep]
