"""`memory://name`: one private, temporary server for this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from docket.storage.embedded.binary import find_server
from docket.storage.embedded.errors import EngineError, explained, failed_to_start
from docket.storage.embedded.processes import no_forks, spawn_detached
from docket.storage.embedded.server_commands import (
    LOG,
    SOCKET,
    EngineAnswer,
    Patience,
    ask,
    last_words,
    listens,
    server_command,
)

from .server_commands import EngineAddress, short_temporary_folder

_DATABASES = 100_000
_EXIT_STATUS = "exit-status"


@dataclass(frozen=True)
class _MemoryServer:
    folder: Path
    lifeline: int

    @property
    def socket_path(self) -> str:
        return str(self.folder / SOCKET)

    def close_lifeline(self) -> None:
        """Closes the lifeline. If this was its last copy, the keeper stops the server and removes
        the folder."""
        # A program that became a daemon may have closed all its files.
        with contextlib.suppress(OSError):
            os.close(self.lifeline)


class _MemoryServers:
    """The server of this process, and the database of each name."""

    def __init__(self) -> None:
        self.server: _MemoryServer | None = None
        self.databases: dict[str, int] = {}

    def running_server(self) -> _MemoryServer:
        if self.server is not None and not listens(self.server.socket_path):
            self.forget()
        if self.server is None:
            self.server = _start_server()
        return self.server

    def database(self, name: str) -> int:
        if name not in self.databases and len(self.databases) == _DATABASES:
            raise EngineError(f"more than {_DATABASES} memory:// names in one process: use fewer, or a real server")
        return self.databases.setdefault(name, len(self.databases))

    def forget(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            server.close_lifeline()

    def begin_in_forked_child(self) -> None:
        # Also closes the copy of the lifeline: otherwise the parent's server would outlive the
        # parent.
        self.forget()
        self.databases.clear()


_this_process = _MemoryServers()
os.register_at_fork(after_in_child=_this_process.begin_in_forked_child)


def memory_engine(name: str) -> EngineAddress:
    """The address of the in-memory engine of that name; equal names share data within a process.

    The first call starts the server, which blocks for some tens of milliseconds. The server ends
    with this process, in whatever way that ends. A forked child gets a server of its own. If the
    server was killed, the next call starts an empty one at another address. Raises EngineError if
    there is no server to run, or if it does not start.
    """
    with no_forks():
        database = _this_process.database(name)
        return EngineAddress(_this_process.running_server().socket_path, database)


def _start_server() -> _MemoryServer:
    binary = find_server()
    command = server_command(binary, "--appendonly", "no", "--databases", str(_DATABASES))
    folder = short_temporary_folder(SOCKET)
    owner_lives, lifeline = os.pipe()
    server = _MemoryServer(folder, lifeline)
    try:
        spawn_detached("keep_memory.sh", [str(folder), *command], folder, stdin=owner_lives, log=subprocess.DEVNULL)
        _wait_until_serving(server, binary)
    except BaseException as error:
        server.close_lifeline()
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise explained(error, folder) from error
        raise
    finally:
        os.close(owner_lives)
    return server


def _wait_until_serving(server: _MemoryServer, binary: Path) -> None:
    patience = Patience()
    while ask(server.socket_path) is not EngineAnswer.SERVING:
        # A server that has ended will never answer, so fail now instead of at the end of the
        # patience.
        if patience.exhausted() or (server.folder / _EXIT_STATUS).exists():
            raise failed_to_start(binary, server.folder, last_words(server.folder / LOG))
        patience.pause()
