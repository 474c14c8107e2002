"""The address of an engine, short enough for a unix socket."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from docket.storage.embedded.errors import EngineError

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
