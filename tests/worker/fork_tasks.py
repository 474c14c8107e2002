"""Functions in children that fork, or start processes of their own. A child imports this module."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

from docket import ExecutionProgress, Process, Progress, Timeout, run_async


def _fork() -> bool:
    """Whether this is the copy."""
    return os.fork() == 0


def copy_returns_first(process: Process = Process()) -> str:
    if _fork():
        return "the copy"
    os.wait()
    return "the function"


def copy_exits(process: Process = Process()) -> str:
    if _fork():
        sys.exit(3)
    _, status = os.wait()
    return f"the copy ended with {os.waitstatus_to_exitcode(status)}"


def copy_raises(process: Process = Process()) -> str:
    if _fork():
        raise ValueError("in the copy")
    _, status = os.wait()
    return f"the copy ended with {os.waitstatus_to_exitcode(status)}"


async def async_copy_returns(process: Process = Process()) -> str:
    if _fork():
        return "the copy"
    _, status = await asyncio.to_thread(os.wait)
    return f"the copy ended with {os.waitstatus_to_exitcode(status)}"


def copy_outlives_the_run(file: str, process: Process = Process()) -> int:
    """The copy lives until the file exists, and then returns."""
    pid = os.fork()
    if pid == 0:
        while not Path(file).exists():
            time.sleep(0.01)
    return pid


def copy_uses_the_worker(process: Process = Process(), progress: ExecutionProgress = Progress()) -> list[str]:
    reading, writing = os.pipe()
    if _fork():
        problems = list[str]()
        for attempt in (lambda: progress.increment(), lambda: run_async(progress.sync())):
            try:
                attempt()
            except RuntimeError as error:
                problems.append(str(error))
        logging.getLogger("shop").warning("a line of the copy")
        os.write(writing, "\n".join(problems).encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 10_000).decode().splitlines()


def ends_a_process_of_its_own(process: Process = Process()) -> int | None:
    """`terminate()` sends SIGTERM, which the child itself ignores."""
    other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    other.start()
    other.terminate()
    other.join()
    return other.exitcode


def interrupts_a_program(process: Process = Process()) -> int:
    program = subprocess.Popen(["sleep", "1000"])
    program.send_signal(signal.SIGINT)
    return program.wait()


def waits_for_a_program(
    file: str, process: Process = Process(), timeout: Timeout = Timeout(timedelta(hours=1))
) -> None:
    program = subprocess.Popen(["sleep", "1000"])
    Path(file).write_text(str(program.pid))
    # Its time is over now, however long the child has taken so far.
    timeout.extend(timedelta(hours=-1))
    program.wait()


def reports_from_a_thread_later(
    file: str, process: Process = Process(), progress: ExecutionProgress = Progress()
) -> None:
    """The thread outlives the run, and reports when the file exists."""

    def report() -> None:
        while not Path(file).exists():
            time.sleep(0.01)
        progress.set_message("of an earlier run")
        Path(file + ".done").touch()

    threading.Thread(target=copy_context().run, args=(report,), daemon=True).start()


def asks_for_a_late_report(file: str, process: Process = Process(), progress: ExecutionProgress = Progress()) -> None:
    progress.set_message("of this run")
    Path(file).touch()
    while not Path(file + ".done").exists():
        time.sleep(0.01)
