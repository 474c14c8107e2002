"""Checks the data folder of a folder engine: private, writable, with free space and a short path to
its socket."""

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
    """Makes the folder private. A folder with other files stays as it is, unless other users may
    write there."""
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
    """Raises OSError if the disk is full. The server could not report that: its log is on the same
    disk."""
    probe = folder / _SPACE_PROBE
    try:
        with probe.open("wb") as file:
            # Random bytes, because a file system may store zeros without using space.
            file.write(os.urandom(_SPACE_NEEDED))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


def open_log(folder: Path) -> int:
    """Opens the server's log for appending. A long log is renamed first."""
    log = folder / LOG
    if log.exists() and log.stat().st_size > _LONGEST_LOG:
        log.replace(folder / f"{LOG}.old")
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def short_socket_path(folder: Path) -> Path:
    """A path to the socket that is short enough to connect to. The caller holds the start lock.

    For a long folder name the path leads through a link in a temporary folder. The folder records
    the link, so that all processes share it, and the keeper removes it. A lost or foreign link is
    replaced.
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
