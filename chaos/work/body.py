"""What every task body does: it writes its start and its end into the history of its process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from chaos.histories import History
from docket import Execution
from docket.dependencies import current_execution

_numbers = itertools.count(1)
_history: History | None = None


def write_to(history: History) -> None:
    """The worker process names its history before it runs anything."""
    global _history
    _history = history


def note(kind: str, **data: Any) -> None:
    assert _history is not None, "no history in this process"
    _history.write(kind, **data)


@contextmanager
def body(token: str, **details: Any) -> Generator[str]:
    """Writes start and end of a run. The value is the run's name, which no other run has."""
    assert _history is not None, "no history in this process"
    execution: Execution = current_execution.get()
    assert execution.started_at is not None
    run = f"{_history.process}.{next(_numbers)}"
    _history.write(
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
        _history.write("end", run=run, how="cancelled")
        raise
    except BaseException:
        _history.write("end", run=run, how="failed")
        raise
    _history.write("end", run=run, how="ok")
