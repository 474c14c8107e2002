"""Starts processes that outlive this one, and keeps forks from inheriting locks and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from docket.storage.embedded.errors import EngineError

_no_forks = threading.RLock()
os.register_at_fork(before=_no_forks.acquire, after_in_parent=_no_forks.release, after_in_child=_no_forks.release)


def no_forks() -> threading.RLock:
    """While held, `os.fork` waits in every other thread.

    A child forked in the middle of a start would keep a copy of a lock or of a lifeline. While
    the child lives, the lock would stay held and the server would not stop.
    """
    return _no_forks


def spawn_detached(
    script: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    stdin: int,
    log: int,
    inherited: Sequence[int] = (),
) -> None:
    """Runs a script of this package that starts a background process and ends at once.

    The background process belongs to init: it leaves no zombie here, and the program's own
    `os.wait` does not see it. It has a session of its own, so that ctrl-C in a terminal does not
    reach it.
    """
    subprocess.run(
        ["/bin/sh", str(Path(__file__).absolute().with_name(script)), *arguments],
        cwd=folder,
        stdin=stdin,
        stdout=log,
        stderr=log,
        pass_fds=inherited,
        start_new_session=True,
        check=False,
    )


def python_program() -> str:
    """A Python interpreter. `sys.executable` is another program where Python is embedded (uWSGI,
    mod_wsgi)."""
    candidates = (Path(sys.executable or "-"), Path(sys.base_exec_prefix, "bin", "python3"))
    for candidate in candidates:
        if candidate.name.lower().startswith(("python", "pypy")) and os.access(candidate, os.X_OK):
            return str(candidate)
    raise EngineError("no Python interpreter to watch the engine with: start it from a program that python runs")
