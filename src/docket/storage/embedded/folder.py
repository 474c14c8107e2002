"""`embedded:///folder`: one server with durable data for all processes that name the folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

from docket.storage.embedded import keeper
from docket.storage.embedded.binary import find_server
from docket.storage.embedded.data_folder import check_space, open_log, prepare_folder, short_socket_path
from docket.storage.embedded.errors import EngineError, explained, failed_to_start
from docket.storage.embedded.processes import no_forks, python_program, spawn_detached
from docket.storage.embedded.server_commands import LOG, EngineAnswer, Patience, ask, last_words, server_command

from .processes import alone, is_open_at, try_lock, try_lock_folder
from .server_commands import EngineAddress

Fsync = Literal["everysec", "always"]

_DEFAULT_LINGER_SECONDS = 10.0
# More than one, because a server may have been killed while it started.
_LAUNCHES = 3


class FolderEngine:
    """A server that keeps its data in a folder, shared by the processes of this machine that name
    the folder.

    The first process that calls `start` launches the server, later ones join. The server stops some
    seconds (`DOCKET_ENGINE_LINGER`, 10) after the last process has called `stop` or has ended. A
    forked child counts as a user of the engine while it lives. Writes reach the disk every second,
    or before the reply with `fsync="always"` (`DOCKET_ENGINE_FSYNC`). The folder must be on a local
    disk. Every method raises EngineError with a line that says what to do.
    """

    def __init__(self, folder: Path, *, fsync: Fsync | None = None) -> None:
        self._folder = Path(os.path.abspath(folder))
        self._fsync = fsync or os.environ.get("DOCKET_ENGINE_FSYNC") or "everysec"
        if self._fsync not in ("everysec", "always"):
            raise EngineError(f"DOCKET_ENGINE_FSYNC={self._fsync} is unknown: use everysec or always")
        self._linger_seconds = _linger_seconds()
        self._presence: int | None = None
        self._address: EngineAddress | None = None

    def start(self) -> EngineAddress:
        """Launches the server or joins it, and waits until it answers. Safe to repeat."""
        try:
            prepare_folder(self._folder)
            address = self._wait_until_serving()
        except BaseException as error:
            # The start failed, so the keeper must not wait for this process.
            self._leave()
            if isinstance(error, OSError):
                raise explained(error, self._folder) from error
            raise
        if self._fsync == "always":
            # The process that launched the server may have set a weaker mode.
            ask(address.socket_path, b"CONFIG SET appendfsync always")
        return address

    def ensure(self) -> EngineAddress:
        """The address, for a client that lost its connection. Starts the server again if it is
        gone."""
        address = self._address
        if address is not None and ask(address.socket_path) is EngineAnswer.SERVING:
            return address
        return self.start()

    def stop(self) -> None:
        """This process stops using the engine. The server goes on for other processes, or for the
        linger time. Safe to repeat."""
        if self._presence is None:
            return
        try:
            if self._start_lock.exists():
                with alone(self._start_lock):
                    self._ensure_keeper()
        except OSError as error:
            raise explained(error, self._folder) from error
        finally:
            self._leave()

    def _wait_until_serving(self) -> EngineAddress:
        patience = Patience()
        launches: list[int] = []
        while True:
            with alone(self._start_lock):
                address = self._enter()
                if (server_lock := try_lock_folder(self._folder)) is not None:
                    launches.append(self._launch(server_lock, launches))
                self._ensure_keeper()
            answer = ask(address.socket_path)
            if answer is EngineAnswer.SERVING:
                return address
            if answer is EngineAnswer.LOADING:
                patience.renew()
            if patience.exhausted():
                raise EngineError(
                    f"the server of {self._folder} runs but does not answer: "
                    f"see {self._folder / LOG}, and end it if it hangs"
                )
            patience.pause()

    def _enter(self) -> EngineAddress:
        """Registers this process as a client, before it launches anything."""
        clients = self._folder / keeper.CLIENTS_LOCK
        if self._presence is not None and not is_open_at(self._presence, clients):
            self._leave()
        if self._presence is None:
            self._presence = try_lock(clients, shared=True)
        if self._presence is None:
            raise EngineError(f"a foreign program has locked {clients}: see which (lsof {clients}) and end it")
        self._address = EngineAddress(str(short_socket_path(self._folder)), 0)
        return self._address

    def _leave(self) -> None:
        with no_forks():
            presence, self._presence = self._presence, None
            self._address = None
            if presence is not None:
                # Closed, not unlocked: a forked child has a copy and may still use the engine.
                os.close(presence)

    def _launch(self, server_lock: int, earlier: list[int]) -> int:
        """Launches the server, which takes over the lock. Returns the size of the log before the
        launch."""
        try:
            binary = find_server()
            if len(earlier) == _LAUNCHES:
                raise failed_to_start(binary, self._folder, last_words(self._folder / LOG, earlier[-1]))
            check_space(self._folder)
            command = server_command(binary, "--appendonly", "yes", "--appendfsync", self._fsync)
            # The keeper comes first: no server runs without one, even if this process is killed
            # now.
            self._ensure_keeper(launching=True)
            return self._spawn("run_server.sh", command, server_lock)
        finally:
            os.close(server_lock)

    def _ensure_keeper(self, *, launching: bool = False) -> None:
        keeper_lock = try_lock(self._folder / keeper.KEEPER_LOCK)
        if keeper_lock is None:
            return
        try:
            # The keeper gets the file open: it knows the group also if the folder is removed before
            # it has begun. At a launch the file still names the group of the previous server.
            emptied = os.O_TRUNC if launching else 0
            group = os.open(self._folder / keeper.SERVER_GROUP, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | emptied, 0o600)
            try:
                script = os.path.abspath(keeper.__file__)
                words = [str(self._linger_seconds), str(keeper_lock), str(group)]
                self._spawn("run_keeper.sh", [python_program(), "-I", "-S", script, *words], keeper_lock, group)
            finally:
                os.close(group)
        finally:
            os.close(keeper_lock)

    def _spawn(self, script: str, command: list[str], *inherited: int) -> int:
        log = open_log(self._folder)
        try:
            size = os.fstat(log).st_size
            spawn_detached(script, command, self._folder, stdin=subprocess.DEVNULL, log=log, inherited=[*inherited])
        finally:
            os.close(log)
        return size

    @property
    def _start_lock(self) -> Path:
        return self._folder / keeper.START_LOCK


def _linger_seconds() -> float:
    text = os.environ.get("DOCKET_ENGINE_LINGER") or str(_DEFAULT_LINGER_SECONDS)
    try:
        return max(float(text), 0.0)
    except ValueError:
        raise EngineError(f"DOCKET_ENGINE_LINGER={text} is not a number: give it in seconds") from None
