"""The keeper of a folder engine: stops the server some time after the last client has left.

It is a process of its own, run in the engine's folder:
`python -I -S keeper.py <linger seconds> <its own lock> <server.group>`. It imports only the
standard library, so that it starts fast and does not depend on installed packages. It is not the
server's parent: each of the two may be killed and replaced while the other runs.

Locks show which processes use the folder. The kernel drops a lock when its process ends, in
whatever way:

- `clients.lock`: shared by every process that uses the engine; unused if an exclusive lock succeeds;
- the folder itself: held by the server from start to end, so that no second server can open the same data;
- `keeper.lock`: held by the keeper; its text is the keeper's process id, for people;
- `start.lock`: held for a moment by a process that starts or stops something.

`server.group` has the server's process group, written before the server starts. It is used only
while the folder is locked: then that group exists, so its number cannot belong to another program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time

START_LOCK = "start.lock"
CLIENTS_LOCK = "clients.lock"
KEEPER_LOCK = "keeper.lock"
SOCKET = "socket"
ALIAS = "socket.alias"
SERVER_GROUP = "server.group"

_CHECK_SECONDS = 1.0
_SHUTDOWN_SECONDS = 20.0
# A server that has just started has no socket yet.
_UNREACHABLE_SECONDS = 5.0


class Keeper:
    def __init__(self, linger_seconds: float, lock: int, group_record: int) -> None:
        self._linger_seconds = linger_seconds
        self._lock = lock
        # Kept in case the folder is removed and these can no longer be read. The record of the
        # group is open from the start: a server that was started just before has written its own
        # group there.
        self._group_record = group_record
        self._server_group: int | None = None
        self._alias: str | None = None
        self._unused_since: float | None = None
        self._unreachable_since: float | None = None

    def keep(self) -> None:
        """Watches the server until it has ended."""
        self._read_records()
        while not self._check():
            time.sleep(min(_CHECK_SECONDS, max(self._linger_seconds / 4, 0.05)))

    def _check(self) -> bool:
        """Checks the folder once. Returns whether the keeper's work is done."""
        try:
            with open(START_LOCK, "rb") as start, open(CLIENTS_LOCK, "rb") as clients:
                if not _can_lock(start.fileno()):
                    return False
                self._read_records()
                if self._is_replaced():
                    return True
                done = self._decide(in_use=not _can_lock(clients.fileno()))
                if done:
                    # Before the start lock is released: the next process that gets it must see that
                    # there is no keeper.
                    self._leave()
                return done
        except FileNotFoundError:
            # The folder is gone or being removed, so no client can find this server any more.
            self._read_records()
            if not self._stop_server() and self._server_group is not None:
                return False
            self._leave()
            return True

    def _read_records(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            opened = os.open(SERVER_GROUP, os.O_RDONLY)
            os.close(self._group_record)
            self._group_record = opened
        self._server_group = _group(os.pread(self._group_record, 64, 0).decode().strip()) or self._server_group
        self._alias = _text_of(ALIAS) or self._alias

    def _is_replaced(self) -> bool:
        """Whether this keeper's lock file was removed,
        and another keeper has a lock of that name."""
        return os.path.exists(KEEPER_LOCK) and not os.path.samestat(os.fstat(self._lock), os.stat(KEEPER_LOCK))

    def _decide(self, in_use: bool) -> bool:
        now = time.monotonic()
        if os.path.exists(SOCKET) or not _folder_has_server():
            self._unreachable_since = None
        elif self._unreachable_since is None:
            self._unreachable_since = now
        elif now - self._unreachable_since > _UNREACHABLE_SECONDS:
            # Somebody removed the socket. Once this server has ended, its clients start another.
            self._unreachable_since = None
            return self._stop_server() and not in_use
        if in_use:
            self._unused_since = None
            return False
        if self._unused_since is None:
            self._unused_since = now
        if _folder_has_server() and now - self._unused_since < self._linger_seconds:
            return False
        return self._stop_server()

    def _stop_server(self) -> bool:
        """Makes the server save and end. Returns whether it has ended."""
        patience = time.monotonic() + _SHUTDOWN_SECONDS
        if self._server_group is not None and _folder_has_server():
            # While the folder is locked the group exists, so its number belongs to no other
            # program.
            with contextlib.suppress(OSError):
                os.killpg(self._server_group, signal.SIGTERM)
        while _folder_has_server():
            if time.monotonic() > patience:
                return False
            time.sleep(0.01)
        return True

    def _leave(self) -> None:
        if self._alias:
            _remove_alias(self._alias)
        # Closing is not enough: the shell that restarts a killed keeper has a copy.
        fcntl.flock(self._lock, fcntl.LOCK_UN)


def _can_lock(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder_has_server() -> bool:
    folder = os.open(".", os.O_RDONLY)
    try:
        return not _can_lock(folder)
    finally:
        os.close(folder)


def _text_of(name: str) -> str | None:
    try:
        with open(name, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None


def _group(text: str) -> int | None:
    # Never 0 or 1, which would mean the keeper itself or init.
    return int(text) if text.isdecimal() and int(text) > 1 else None


def _remove_alias(alias: str) -> None:
    """Removes the link to the socket and its temporary folder, and nothing else."""
    with contextlib.suppress(OSError):
        os.unlink(ALIAS)
    with contextlib.suppress(OSError):
        os.readlink(alias)
        os.unlink(alias)
        os.rmdir(os.path.dirname(alias))


def main(linger_seconds: str, lock: str, group_record: str) -> None:
    os.ftruncate(int(lock), 0)
    os.pwrite(int(lock), str(os.getpid()).encode(), 0)
    Keeper(float(linger_seconds), int(lock), int(group_record)).keep()


if __name__ == "__main__":
    main(*sys.argv[1:])
