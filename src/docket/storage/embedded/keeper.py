"""The keeper of a folder engine: stops the server a while after the last client has left.

A process of its own, run in the engine's folder as
`python -I -S keeper.py <linger seconds> <its own lock>`. It imports only the standard library, so
that it starts at once and does not depend on what is installed. It is not the server's parent: it
may be killed and replaced while the server runs, and the other way round.

Who uses the folder is known from locks, which the kernel drops when a process ends in whatever way:

- `clients.lock`: shared by every process that uses the engine; nobody there when it can be had exclusively;
- the folder itself: held by the server from start to end, so that no second one can open the same data;
- `keeper.lock`: held by the keeper; its text is the keeper's process id, for people;
- `start.lock`: held for a moment by whoever starts or stops something.

`server.group` has the server's process group, written before the server starts. It is only used
while the folder is locked: then that group exists, so that its number cannot be another program's.
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

_LOOK_AGAIN_SECONDS = 1.0
_SHUTDOWN_SECONDS = 20.0
# A server that is just starting has no socket yet.
_UNREACHABLE_SECONDS = 5.0


class Keeper:
    def __init__(self, linger_seconds: float, lock: int, server_group: int | None) -> None:
        self._linger_seconds = linger_seconds
        self._lock = lock
        # Remembered, for the case that the folder is removed and these cannot
        # be found any more. The record of the group is kept open: a server
        # that was started again just before has written its own there.
        self._server_group = server_group
        self._group_record: int | None = None
        self._alias: str | None = None
        self._unused_since: float | None = None
        self._unreachable_since: float | None = None

    def keep(self) -> None:
        """TaskStatus after the server until it has ended."""
        self._read_records()
        while not self._look():
            time.sleep(min(_LOOK_AGAIN_SECONDS, max(self._linger_seconds / 4, 0.05)))

    def _look(self) -> bool:
        """One look round; whether the work is done."""
        try:
            with open(START_LOCK, "rb") as start, open(CLIENTS_LOCK, "rb") as clients:
                if not _can_lock(start.fileno()):
                    return False
                self._read_records()
                if self._is_replaced():
                    return True
                done = self._decide(in_use=not _can_lock(clients.fileno()))
                if done:
                    # Before the start lock goes: whoever gets
                    # that next must see that there is no keeper.
                    self._leave()
                return done
        except FileNotFoundError:
            # The folder is gone or on its way: nobody can find this server any more.
            self._read_records()
            if not self._stop_server() and self._server_group is not None:
                return False
            self._leave()
            return True

    def _read_records(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            opened = os.open(SERVER_GROUP, os.O_RDONLY)
            if self._group_record is not None:
                os.close(self._group_record)
            self._group_record = opened
        if self._group_record is not None:
            self._server_group = _group(os.pread(self._group_record, 64, 0).decode().strip()) or self._server_group
        self._alias = _text_of(ALIAS) or self._alias

    def _is_replaced(self) -> bool:
        """Whether somebody removed our lock, and there
        is another keeper with a lock of that name."""
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
        """Have the server save and end; whether there is none any more."""
        patience = time.monotonic() + _SHUTDOWN_SECONDS
        if self._server_group is not None and _folder_has_server():
            # As long as the folder is locked the group exists, and its number is nobody else's.
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
        # Closing would not do: the shell that restarts a killed keeper has a copy.
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


def _group(text: str | None) -> int | None:
    # Never 0 or 1: these would mean the keeper itself, or init.
    return int(text) if text and text.isdecimal() and int(text) > 1 else None


def _remove_alias(alias: str) -> None:
    """The short way to the socket: a link in a temporary
    folder of its own. Nothing else is ever removed."""
    with contextlib.suppress(OSError):
        os.unlink(ALIAS)
    with contextlib.suppress(OSError):
        os.readlink(alias)
        os.unlink(alias)
        os.rmdir(os.path.dirname(alias))


def main(linger_seconds: str, lock: str, server_group: str = "") -> None:
    os.ftruncate(int(lock), 0)
    os.pwrite(int(lock), str(os.getpid()).encode(), 0)
    Keeper(float(linger_seconds), int(lock), _group(server_group)).keep()


if __name__ == "__main__":
    main(*sys.argv[1:])
