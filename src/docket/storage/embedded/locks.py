"""File locks. The kernel drops a lock with the last process that has the file open, so no lock is
ever stale."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from docket.storage.embedded.errors import EngineError
from docket.storage.embedded.processes import no_forks
from docket.storage.embedded.server_commands import Patience


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """An open file that holds the lock, or None if another process has it. Closing the file
    releases the lock."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return _locked(opened, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock_folder(path: Path) -> int | None:
    """The same for the folder itself: there is no lock file that a user could take for stale and
    remove."""
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
