"""Programs that use a sync docket, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import SECONDS

PRELUDE = """
import multiprocessing, os, signal, sys, threading, time, warnings
from datetime import timedelta
from docket.sync import Docket
from tests.sync.tasks import TASKS, double, stay
from tests.sync.workers import working
from tests.waiting import SECONDS, WAIT_LIMIT, eventually_blocking

# Python warns of forks in a process with threads.
warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
url = os.environ["PROGRAM_URL"]
docket = Docket("program", url)


def add(number):
    return docket.add(double, when=docket.now() + timedelta(hours=1), key=str(number))(number).key


def wait_for(*children):
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run(code: str, url: str, *, quiet: bool = True, **environment: str) -> str:
    """Runs a program to its end and returns what it has written. With `quiet` it must not write to
    stderr, also with all of Python's warnings on."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PROGRAM_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not quiet or done.stderr == "", done.stderr
    return done.stdout
