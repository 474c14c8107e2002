"""The folder of a folder engine: private, writable,
with room on its disk, and a way to its socket."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from docket.storage.embedded.address import fits_a_socket, short_temporary_folder
from docket.storage.embedded.errors import EngineError
from docket.storage.embedded.keeper import ALIAS, START_LOCK
from docket.storage.embedded.server_commands import LOG, SOCKET

_SPACE_PROBE = "space.probe"
_SPACE_NEEDED = 64 * 1024
_LONGEST_LOG = 1024 * 1024


def prepare_folder(folder: Path) -> None:
    """Make it private. One that holds other things is
    left as it is, unless others may write there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & 0o077:
        return
    contents = os.listdir(folder)
    try:
        if not contents or START_LOCK in contents:
            folder.chmod(0o700)
            return
    except PermissionError:
        pass
    if mode & 0o022:
        raise EngineError(f"others may write in {folder}: name a folder for docket alone, such as {folder / 'docket'}")


def check_space(folder: Path) -> None:
    """Raise OSError if the disk is full. The server's
    words on it would be lost: its log is on that disk."""
    probe = folder / _SPACE_PROBE
    try:
        with probe.open("wb") as file:
            # Noise, because a file system may store zeros without using space.
            file.write(os.urandom(_SPACE_NEEDED))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


def open_log(folder: Path) -> int:
    """The server's log, for appending; a long one is set aside first."""
    log = folder / LOG
    if log.exists() and log.stat().st_size > _LONGEST_LOG:
        log.replace(folder / f"{LOG}.old")
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def way_to_socket(folder: Path) -> Path:
    """A path to the socket that is short enough to connect to. Call it with the start lock held.

    For a long folder name it leads through a link in a temporary folder.
    The link is recorded in the folder, so that all processes share it,
    and removed by the keeper; a lost or foreign one is replaced.
    """
    if fits_a_socket(folder / SOCKET):
        return folder / SOCKET
    record = folder / ALIAS
    if record.exists() and _leads_to(alias := Path(record.read_text()), folder):
        return alias / SOCKET
    alias = short_temporary_folder(f"link/{SOCKET}") / "link"
    alias.symlink_to(folder)
    record.write_text(str(alias))
    return alias / SOCKET


def _leads_to(alias: Path, folder: Path) -> bool:
    try:
        return alias.parent.stat().st_uid == os.geteuid() and alias.samefile(folder) and fits_a_socket(alias / SOCKET)
    except OSError:
        return False
