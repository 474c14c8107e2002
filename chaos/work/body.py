"""The body of every task: it writes its start and its end into the history of its process."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos.histories import CHILD, History
from docket import Execution, check_cancelled
from docket.dependencies import current_execution

# Children find the folder of the histories and the name of their worker in their environment.
FOLDER, WORKER = "CHAOS_FOLDER", "CHAOS_WORKER"

_numbers = itertools.count(1)
_history: History | None = None


def write_to(history: History, folder: Path) -> None:
    """The worker process names its history before it runs anything."""
    global _history
    _history = history
    os.environ[FOLDER], os.environ[WORKER] = str(folder), history.process


def _own_history() -> History:
    """The history of this process. A child has a file of its own."""
    global _history
    if _history is None:
        assert FOLDER in os.environ, "no history in this process"
        _history = History(Path(os.environ[FOLDER]), f"{os.environ[WORKER]}{CHILD}{os.getpid()}")
    return _history


def note(kind: str, **data: Any) -> None:
    _own_history().write(kind, **data)


@contextmanager
def body(token: str, **details: Any) -> Generator[str]:
    """Writes start and end of a run. The value is the run's name, which no other run has."""
    history = _own_history()
    execution: Execution = current_execution.get()
    assert execution.started_at is not None
    run = f"{history.process}.{next(_numbers)}"
    history.write(
        "start",
        run=run,
        token=token,
        key=execution.key,
        function=execution.function_name,
        epoch=execution.epoch,
        attempt=execution.attempt,
        generation=execution.generation,
        claimed=execution.started_at.timestamp(),
        due=execution.when.timestamp(),
        redelivered=execution.redelivered,
        **details,
    )
    try:
        yield run
    except asyncio.CancelledError:
        history.write("end", run=run, how="cancelled")
        raise
    except BaseException:
        history.write("end", run=run, how="failed")
        raise
    history.write("end", run=run, how="ok")


@contextmanager
def thread_body(token: str, **details: Any) -> Generator[str]:
    """The body of a plain function in a thread. Its end also says whether the run was given up
    before."""
    with body(token, runtime="thread", **details) as run:
        yield run
        try:
            check_cancelled()
        except asyncio.CancelledError:
            note("given up", run=run)


@contextmanager
def child_body(token: str, **details: Any) -> Generator[str]:
    """The body of a function in a child."""
    with body(token, runtime="child", pid=os.getpid(), **details) as run:
        yield run
