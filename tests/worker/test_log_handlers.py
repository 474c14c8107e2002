"""Handlers and filters of the application that raise. `logging` lets their errors through to the
caller, which is a worker here: they must not change what becomes of a task."""

from __future__ import annotations

import ast
import io
import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import docket as package
from docket import Docket, ExecutionState, Process, Retry
from docket.model.loggers import OWN_LOGGERS
from tests.running import run_everything


class Broken(logging.Handler):
    """Raises for lines with one of these marks."""

    def __init__(self, marks: str) -> None:
        super().__init__()
        self.marks = marks
        self.raised = 0

    def emit(self, record: logging.LogRecord) -> None:
        if any(mark in record.getMessage() for mark in self.marks):
            self.raised += 1
            raise RuntimeError("this handler is broken")


class BrokenFilter(logging.Filter):
    raised = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.raised += 1
        raise RuntimeError("this filter is broken")


@contextmanager
def logged_by(handler: logging.Handler) -> Generator[None]:
    """The handler gets all lines of docket, from INFO on."""
    root = logging.getLogger("docket")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


RUNS: list[str] = []


async def succeeds() -> None:
    RUNS.append("succeeds")


async def returns() -> int:
    RUNS.append("returns")
    return 7


async def fails() -> None:
    RUNS.append("fails")
    raise ValueError("as asked")


async def fails_twice(retry: Retry = Retry(attempts=2, delay=timedelta(0))) -> None:
    RUNS.append("fails_twice")
    raise ValueError("as asked")


def in_a_child(process: Process = Process()) -> None:
    logging.getLogger("docket.task.in_a_child").warning("↪ from the child")


@pytest.fixture(autouse=True)
def no_runs() -> None:
    RUNS.clear()


ALL_RUNS = ["fails", "fails_twice", "fails_twice", "returns", "succeeds"]


@pytest.mark.parametrize("marks", ["↪↬", "↩", "↫", "↪↬↩↫"])
async def test_a_handler_that_raises_changes_no_run(docket: Docket, marks: str) -> None:
    broken = Broken(marks)
    executions = [await docket.add(function)() for function in (succeeds, returns, fails, fails_twice)]
    with logged_by(broken):
        await run_everything(docket)
    assert broken.raised
    assert sorted(RUNS) == ALL_RUNS
    for execution, state in zip(executions, ["COMPLETED", "COMPLETED", "FAILED", "FAILED"], strict=True):
        await execution.sync()
        assert execution.state is ExecutionState[state]


async def test_a_filter_that_raises_ends_no_worker(docket: Docket) -> None:
    broken = BrokenFilter()
    handler = logging.StreamHandler(io.StringIO())
    handler.addFilter(broken)
    await docket.add(succeeds)()
    with logged_by(handler):
        await run_everything(docket)
    assert broken.raised
    assert RUNS == ["succeeds"]


async def test_a_handler_that_raises_for_a_line_of_a_child_process_fails_no_run(docket: Docket) -> None:
    broken = Broken("↪")
    execution = await docket.add(in_a_child)()
    with logged_by(broken):
        await run_everything(docket)
    await execution.sync()
    assert (execution.state, execution.error) == (ExecutionState.COMPLETED, None)


async def test_the_error_of_a_handler_is_reported(docket: Docket, capsys: pytest.CaptureFixture[str]) -> None:
    await docket.add(succeeds)()
    with logged_by(Broken("↩")):
        await run_everything(docket)
    errors = capsys.readouterr().err
    assert "--- Logging error ---" in errors
    assert "this handler is broken" in errors


def test_every_logger_of_docket_is_one_that_never_raises() -> None:
    named = {
        node.args[0].value
        for path in Path(package.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "getLogger"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert named - {"docket"} == set(OWN_LOGGERS)
