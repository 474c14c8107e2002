"""Errors of the embedded engine: one line that says what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from docket.errors import DocketError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NOT_A_FOLDER = {errno.ENOTDIR, errno.EEXIST}
# Network file systems answer a lock on a directory with one of these.
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF}


class EngineError(DocketError, RuntimeError):
    """The embedded engine cannot be started or does not answer; the message says what to do."""


def explained(error: OSError, folder: Path) -> EngineError:
    """An error of the system, with the name of the folder and the remedy."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return disk_full(folder)
    if error.errno in _FORBIDDEN:
        return EngineError(f"cannot write in {folder} ({reason}): name a folder that this user may write to")
    if error.errno in _NOT_A_FOLDER:
        return EngineError(f"{folder} cannot be a folder, because a file has that name: name another folder")
    if error.errno in _NO_LOCKS:
        return EngineError(f"no file locks in {folder} ({reason}): name a folder on a local disk")
    return EngineError(f"cannot use the folder {folder} ({reason}): name a folder that this user may write to")


def disk_full(folder: Path) -> EngineError:
    return EngineError(f"the disk of {folder} is full: free some space, then start again")


def failed_to_start(binary: Path, folder: Path, last_words: str) -> EngineError:
    """The server ended before it answered. The last lines of its log explain it best."""
    if "No space left on device" in last_words:
        return disk_full(folder)
    return EngineError(f"{binary} did not start in {folder}; the end of its log: {last_words or '(none)'}")
