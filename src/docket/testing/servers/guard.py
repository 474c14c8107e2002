"""Makes sure that no server outlives the process
that started it, even if that process is killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
from pathlib import Path

from docket.storage.embedded.server_commands import short_temporary_folder

# The longest path of a socket below the folder: <number>/socket.
_LONGEST_NAME = "123456/socket"


class Guard:
    """A shell that watches this process. It knows the process groups of all servers and their
    common folder; when this process has ended, it kills the groups and removes the folder."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lifeline = -1
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def new_folder(self) -> Path:
        """An empty folder with a short name."""
        with self._lock:
            if self._folder is None:
                self._folder = self._begin()
            folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        return folder

    def watch(self, group: int) -> None:
        self._say(f"start {group}")

    def release(self, group: int) -> None:
        """The group has ended, so its number may soon belong to another program."""
        self._say(f"end {group}")

    def forget(self) -> None:
        """In a forked child: the servers are those of the parent."""
        if self._folder is not None:
            # A program that became a daemon may have closed all its files.
            with contextlib.suppress(OSError):
                os.close(self._lifeline)
        self.__init__()

    def _begin(self) -> Path:
        folder = short_temporary_folder(_LONGEST_NAME)
        owner_lives, self._lifeline = os.pipe()
        try:
            script = Path(__file__).absolute().with_name("guard.sh")
            subprocess.run(["/bin/sh", str(script), str(folder)], stdin=owner_lives, start_new_session=True, check=True)
        finally:
            os.close(owner_lives)
        return folder

    def _say(self, line: str) -> None:
        # Short enough to be written in one piece, from any thread.
        os.write(self._lifeline, f"{line}\n".encode())


guard: Guard = Guard()
os.register_at_fork(after_in_child=guard.forget)
