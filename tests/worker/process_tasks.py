"""Functions that the tests run in child processes. A child imports this module."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

from docket import (
    ConcurrencyLimit,
    CurrentDocket,
    CurrentExecution,
    Depends,
    Docket,
    Execution,
    ExecutionProgress,
    Perpetual,
    Process,
    Progress,
    Retry,
    Shared,
    TaskKey,
    TaskLogger,
    Timeout,
    run_async,
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def where(number: int = 0, process: Process = Process()) -> tuple[int, int, bool]:
    return number, os.getpid(), threading.current_thread() is threading.main_thread()


async def async_where(number: int = 0, process: Process = Process()) -> tuple[int, int]:
    await asyncio.sleep(0)
    return number, os.getpid()


def nothing(process: Process = Process()) -> None: ...


def fails(process: Process = Process()) -> None:
    raise ValueError("no good")


def segfaults(process: Process = Process()) -> None:
    ctypes.string_at(0)


def segfaults_once(file: str, process: Process = Process(), retry: Retry = Retry(attempts=3)) -> int:
    if not Path(file).exists():
        Path(file).touch()
        ctypes.string_at(0)
    return retry.attempt


def exits(process: Process = Process()) -> None:
    os._exit(3)


def kills_itself(process: Process = Process()) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def spins(
    file: str,
    process: Process = Process(),
    timeout: Timeout = Timeout(timedelta(milliseconds=100)),
) -> None:
    Path(file).write_text(str(os.getpid()))
    while True:
        pass


def spins_deaf(file: str, process: Process = Process()) -> None:
    """Neither a signal nor an exception ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(file).write_text(str(os.getpid()))
    while True:
        pass


def computes_in_c(file: str, process: Process = Process()) -> None:
    """Does not return to Python code, which would look for signals, and keeps the GIL."""
    Path(file).write_text(str(os.getpid()))
    sum(range(10**15))


def notes_pid(file: str, process: Process = Process()) -> None:
    Path(file).write_text(str(os.getpid()))


def leaves_timer(process: Process = Process()) -> int:
    signal.setitimer(signal.ITIMER_REAL, 3600)
    return os.getpid()


def finds_timer(process: Process = Process()) -> tuple[int, bool]:
    return os.getpid(), signal.getitimer(signal.ITIMER_REAL)[0] > 0


def note(file: str, state: str) -> None:
    Path(file).write_text(state)


def cleans_up(file: str, process: Process = Process()) -> None:
    try:
        note(file, "begun")
        time.sleep(600)
    finally:
        note(file, "clean")


def counts_and_cleans_up(file: str, process: Process = Process()) -> None:
    """Writes a line again and again, so that others see that it goes on."""
    try:
        while True:
            with Path(file).open("a") as lines:
                lines.write("goes on\n")
            time.sleep(0.001)
    finally:
        note(file, "clean")


async def async_cleans_up(file: str, process: Process = Process()) -> None:
    try:
        note(file, "begun")
        await asyncio.sleep(600)
    finally:
        note(file, "clean")


def allocates(size: int, process: Process = Process(memory="256MiB")) -> int:
    return len(bytearray(size))


_hoard: list[bytearray] = []


def hoards(size: int, process: Process = Process(memory="200MiB")) -> int:
    _hoard.append(bytearray(size))
    return os.getpid()


def worn_out(process: Process = Process(recycle=2)) -> int:
    return os.getpid()


def counted(file: str, process: Process = Process(), retry: Retry = Retry(attempts=3)) -> tuple[int, int]:
    """Notes each start of its body."""
    with Path(file).open("a") as starts:
        starts.write("begun\n")
    return os.getpid(), retry.attempt


def counted_worn_out(file: str, process: Process = Process(recycle=3)) -> int:
    with Path(file).open("a") as starts:
        starts.write("begun\n")
    return os.getpid()


def waits_for(
    file: str, gate: str, process: Process = Process(), timeout: Timeout = Timeout(timedelta(hours=1))
) -> int:
    """Runs until the file `gate` is there."""
    Path(file).write_text(str(os.getpid()))
    while not Path(gate).exists():
        time.sleep(0.001)
    return os.getpid()


# A library that does not survive a fork: its thread would be missing in the child, and its lock
# could be held by nobody.
_owner = os.getpid()
_requests: list[int] = []
_wanted = threading.Condition()


def _serve() -> None:
    with _wanted:
        while True:
            _wanted.wait()
            _requests.append(os.getpid())
            _wanted.notify_all()


threading.Thread(target=_serve, daemon=True).start()


def uses_library(process: Process = Process()) -> bool:
    with _wanted:
        _wanted.notify_all()
        assert _wanted.wait_for(lambda: _requests, timeout=60), "the library's thread is missing"
    return _owner == os.getpid() == _requests[0]


# Dependencies

tenant: ContextVar[str] = ContextVar("tenant", default="none")
closed: list[str] = []


@asynccontextmanager
async def connect() -> AsyncGenerator[int]:
    tenant.set("acme")
    async with asyncio.timeout(60):
        yield os.getpid()
    closed.append("connection")


@asynccontextmanager
async def pool() -> AsyncGenerator[list[int]]:
    yield [os.getpid()]


def depends(
    number: int,
    process: Process = Process(),
    key: str = TaskKey(),
    connection: int = Depends(connect),
    shared: list[int] = Shared(pool),
    log: logging.LoggerAdapter[logging.Logger] = TaskLogger(),
    retry: Retry = Retry(attempts=2),
    limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=5),
) -> dict[str, Any]:
    shared.append(number)
    log.warning("number %d", number)
    pid = os.getpid()
    return {
        "here": connection == pid == shared[0],
        "key": key,
        "tenant": tenant.get(),
        "shared": shared[1:],
        "attempt": retry.attempt,
        "closed": len(closed),
    }


def logs(process: Process = Process()) -> None:
    logging.getLogger("shop").info("from the child", extra={"order": 7, "odd": object()})
    logging.getLogger("shop").debug("not enabled")
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError:
        logging.getLogger("shop").exception("caught")


def reports(steps: int, process: Process = Process(), progress: Progress = Progress()) -> int | None:
    progress.set_total(steps)
    for _ in range(steps):
        progress.increment()
    progress.set_message("done")
    return progress.current


def extends(process: Process = Process(), timeout: Timeout = Timeout(SECOND)) -> tuple[bool, bool]:
    before = timeout.remaining() <= SECOND
    timeout.extend(MINUTE)
    time.sleep(1.3)
    return before, timedelta(0) < timeout.remaining() <= MINUTE


def schedules(
    process: Process = Process(), docket: Docket = CurrentDocket(), execution: Execution = CurrentExecution()
) -> str:
    added = run_async(docket.add(nothing, key=f"{execution.key}-next")())
    return added.key


def perpetuates(number: int, file: str, process: Process = Process(), perpetual: Perpetual = Perpetual()) -> int:
    with Path(file).open("a") as numbers:
        numbers.write(f"{number} ")
    if number == 3:
        perpetual.cancel()
    perpetual.perpetuate(number + 1, file)
    return number


def forces_retry(process: Process = Process(), retry: Retry = Retry(attempts=2)) -> int:
    if retry.attempt == 1:
        retry.after(timedelta(milliseconds=1))
    return retry.attempt


def unpicklable(process: Process = Process()) -> Any:
    return threading.Lock()


class OddError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def raises_oddly(process: Process = Process()) -> None:
    raise OddError("a", "b")


def raises_oddly_in_thread() -> None:
    raise OddError("a", "b")


def leaves(process: Process = Process()) -> None:
    sys.exit(3)


def raises_unknown(folder: str, process: Process = Process()) -> None:
    sys.path.insert(0, folder)
    raise importlib.import_module("only_in_child").Unknown("a")


def keeps_secret(secret: str, process: Process = Process()) -> str:
    return f"kept {secret}"


def loses_secret(secret: str, process: Process = Process()) -> None:
    raise LookupError(f"lost {secret}")


def opens_large(data: bytes, process: Process = Process()) -> bytes:
    return data[::-1]


def traced(process: Process = Process()) -> str:
    from opentelemetry import trace

    return format(trace.get_current_span().get_span_context().trace_id, "032x")


def cancels_itself(process: Process = Process()) -> None:
    raise asyncio.CancelledError("enough")


def reports_from_threads(count: int, process: Process = Process(), progress: ExecutionProgress = Progress()) -> None:
    with ThreadPoolExecutor(4) as pool:
        for report in [pool.submit(progress.increment) for _ in range(count)]:
            report.result()


def writes_garbage(process: Process = Process()) -> None:
    """Writes to every descriptor of its process that it does not know."""
    for descriptor in range(3, 64):
        with suppress(OSError):
            os.write(descriptor, b"\x00\x00\x00\x05hello")
    time.sleep(1000)
