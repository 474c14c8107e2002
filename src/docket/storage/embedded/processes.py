"""Starts processes that outlive this one, and keeps forks from inheriting locks and pipes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .errors import EngineError
from .server_commands import Patience

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


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """An open file that holds the lock, or None if another process has it. Closing the file
    releases the lock."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return _locked(opened, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock_folder(path: Path) -> int | None:
    """An open folder that holds its own lock, or None if another process has it: there is no lock
    file that a user could take for stale and remove."""
    return _locked(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), path, fcntl.LOCK_EX)


def _locked(opened: int, path: Path, kind: int) -> int | None:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
        if is_open_at(opened, path):
            return opened
    except BlockingIOError:
        pass
    except BaseException:
        os.close(opened)
        raise
    os.close(opened)
    return None


def is_open_at(opened: int, path: Path) -> bool:
    """Whether the open file is still the file of that name: a lock on a removed file excludes no
    other process."""
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def alone(lock: Path) -> Generator[None]:
    """Lets one process, and one thread of it, in at a time. Hold it only briefly: forks have to
    wait."""
    patience = Patience()
    while True:
        with no_forks():
            if (held := try_lock(lock)) is not None:
                try:
                    yield
                    return
                finally:
                    os.close(held)
        if patience.exhausted():
            raise EngineError(f"another process has held {lock} for too long: see which (lsof {lock}) and end it")
        patience.pause()
