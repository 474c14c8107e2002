"""The command line of the server, and checks whether it answers."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .errors import EngineError

SOCKET = "socket"
LOG = "server.log"
# A server without a sign of life for this long has failed. Loading is a sign of life.
PATIENCE_SECONDS = 30.0


class EngineAnswer(Enum):
    """The server's answer to a PING."""

    SERVING = "serving"
    LOADING = "loading"
    SILENT = "silent"


def server_command(binary: Path, *options: str) -> list[str]:
    """The command line, for every Redis since 6.2 and every Valkey. Run it in the engine's folder.

    The socket path is relative to that folder: it can never be too long for the server, and a
    server whose folder was replaced cannot remove the socket of its successor when it exits.
    """
    debugging = ("--enable-debug-command", "local") if os.environ.get("DOCKET_ENGINE_DEBUG") else ()
    return [
        *(str(binary), "--port", "0", "--unixsocket", SOCKET, "--unixsocketperm", "700"),
        *("--protected-mode", "no", "--save", "", "--maxmemory-policy", "noeviction"),
        *debugging,
        *options,
    ]


def ask(socket_path: str, command: bytes = b"PING", timeout: float = 1.0) -> EngineAnswer:
    """Any reply but LOADING means that the server serves, even an error: clients should see a full
    disk."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(socket_path)
            check_peer(connection, socket_path)
            connection.sendall(command + b"\r\n")
            reply = connection.recv(512)
    except OSError:
        return EngineAnswer.SILENT
    if not reply:
        return EngineAnswer.SILENT
    return EngineAnswer.LOADING if reply.startswith(b"-LOADING") else EngineAnswer.SERVING


def check_peer(connection: socket.socket, socket_path: str) -> None:
    """Raises EngineError if the server belongs to another user. Only Linux tells whose it is; on
    other systems it must be enough that the folder is this user's alone."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return
    _, owner, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    if owner != os.geteuid():
        raise EngineError(f"the server at {socket_path} belongs to another user (uid {owner}): docket does not use it")


def listens(socket_path: str) -> bool:
    """Whether a server listens on the socket, in a few microseconds. A busy server counts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(socket_path)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def last_words(log: Path, since: int = 0) -> str:
    """The last lines that the server wrote to its log after `since` bytes, on one line."""
    try:
        with log.open("rb") as lines:
            lines.seek(max(since, log.stat().st_size - 4000))
            text = lines.read().decode(errors="replace")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-5:])


class Patience:
    """Waits in growing steps until there was no sign of life for too long."""

    def __init__(self) -> None:
        self._step = 0.001
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def exhausted(self) -> bool:
        return time.monotonic() > self._deadline

    def pause(self) -> None:
        time.sleep(self._step)
        self._step = min(self._step * 1.25, 0.05)


# The kernel's limit is 107 bytes on Linux and 103 on macOS.
LONGEST_SOCKET_PATH = 100


@dataclass(frozen=True)
class EngineAddress:
    """A unix socket and the database to use there."""

    socket_path: str
    database: int


def fits_a_socket(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH


def short_temporary_folder(longest_name: str) -> Path:
    """A new private folder for a socket with the name `longest_name`."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        # mkdtemp adds eight random characters to the prefix.
        if fits_a_socket(Path(parent, "docket-12345678", longest_name)):
            return Path(tempfile.mkdtemp(prefix="docket-", dir=parent))
    raise EngineError("the path of the temporary folder is too long for a unix socket: set TMPDIR to a shorter one")
