"""Checks the data folder of a folder engine: private, writable, with free space and a short path to
its socket."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from docket.storage.embedded.errors import EngineError
from docket.storage.embedded.keeper import ALIAS, START_LOCK
from docket.storage.embedded.server_commands import LOG, SOCKET

from .server_commands import fits_a_socket, short_temporary_folder

_SPACE_PROBE = "space.probe"
_SPACE_NEEDED = 64 * 1024
_LONGEST_LOG = 1024 * 1024


def prepare_folder(folder: Path) -> None:
    """Makes the folder private. A folder with other files stays as it is, unless other users may
    write there.

    Whoever else owns the folder, or could write there, could run code in this process by the data
    that it reads. So docket refuses a folder of another user, a symbolic link in its place, and
    files in it that another user has left.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = _open_folder(folder)
    try:
        mode = stat.S_IMODE(os.fstat(opened).st_mode)
        is_ours = not (contents := os.listdir(opened)) or START_LOCK in contents
        if mode & 0o077 and is_ours:
            os.fchmod(opened, 0o700)
        elif mode & 0o022:
            raise EngineError(
                f"others may write in {folder}: name a folder for docket alone, such as {folder / 'docket'}"
            )
        if is_ours:
            # Listed again: others could write until now.
            _check_contents(folder, opened)
    finally:
        os.close(opened)


def _open_folder(folder: Path) -> int:
    """Opens the folder itself, which must be this user's."""
    if folder.is_symlink():
        raise EngineError(f"{folder} is a symbolic link: name the folder itself, {folder.resolve()}")
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    owner = os.fstat(opened).st_uid
    if owner != os.geteuid():
        os.close(opened)
        raise EngineError(
            f"{folder} belongs to another user (uid {owner}, this is {os.geteuid()}): name a folder of your own"
        )
    return opened


def _check_contents(folder: Path, opened: int) -> None:
    for name in os.listdir(opened):
        try:
            entry = os.stat(name, dir_fd=opened, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if entry.st_uid != os.geteuid():
            raise EngineError(
                f"{folder / name} belongs to another user (uid {entry.st_uid}): remove it if it is not yours"
            )


def check_space(folder: Path) -> None:
    """Raises OSError if the disk is full. The server could not report that: its log is on the same
    disk."""
    probe = folder / _SPACE_PROBE
    try:
        with open(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
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
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


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
