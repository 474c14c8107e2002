"""One server process in a folder of its own."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from docket.storage.client.clients import control_client
from docket.storage.embedded.server_commands import EngineAnswer, ask, last_words

from .binaries import Binary, ServerNotFound, find_binary
from .certificates import Certificates
from .guard import guard

HOST = "127.0.0.1"
# A server that does not answer for this long has failed. It ends what hangs: machines may be busy.
_PATIENCE_SECONDS = 90.0
_LAUNCHES = 20
# The server runs only after the guard knows it: if this process is killed before, `read` fails.
_WHEN_WATCHED = 'read -r watched && exec "$@" </dev/null'


@dataclass(frozen=True)
class Login:
    """A user of a server with ACL. `admin` may do everything; the default user is off."""

    user: str = "admin"
    password: str = "secret"

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a server with this user, who also copies data from other servers."""
        rules = ("--user", self.user, "on", f">{self.password}", "~*", "&*", "+@all", "--user", "default", "off")
        return (*rules, "--masteruser", self.user, "--masterauth", self.password)


class ServerProcess:
    """A server that a test may kill, pause, restart and misconfigure.

    It always listens on a socket in its folder (`socket`), with `tcp` also on a port. `options` are
    those of its command line (`"--appendonly", "yes"`). They are written to a configuration file
    before the first start, which the server may rewrite. With `certificates` the port speaks TLS,
    with `sentinel` the server is a sentinel. A context manager; `close` kills the server and
    removes its folder. Nothing outlives the process that started it.
    """

    def __init__(
        self,
        *options: str,
        binary: Binary | str | Path | None = None,
        tcp: bool = False,
        port: int = 0,
        login: Login | None = None,
        certificates: Certificates | None = None,
        sentinel: bool = False,
    ) -> None:
        self.binary: Binary = binary if isinstance(binary, Binary) else find_binary(binary)
        if certificates is not None and not self.binary.speaks_tls:
            raise ServerNotFound(f"{self.binary.name} ({self.binary.path}) was built without TLS")
        self.folder: Path = guard.new_folder()
        self.socket: Path = self.folder / "socket"
        self.tcp: bool = tcp or port > 0 or certificates is not None
        self.port: int = port
        self.login = login
        self.certificates = certificates
        self._sentinel = sentinel
        # A chosen port is kept.
        self._may_change_port = not port
        self._options = (*options, *(login.options if login is not None else ()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of database 0, with the user and the
        authority of the certificate if necessary."""
        login = f"{self.login.user}:{quote(self.login.password)}@" if self.login is not None else ""
        if not self.tcp:
            return f"unix://{login}{self.socket}?db=0"
        if self.certificates is None:
            return f"redis://{login}{HOST}:{self.port}/0"
        return f"rediss://{login}localhost:{self.port}/0?ssl_ca_certs={self.certificates.authority}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """The process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """The file with the server's log."""
        return self.folder / "server.log"

    def start(self, *options: str, wait: bool = True) -> Self:
        """Starts the server, and waits until it answers. A repeated start keeps the data and the
        port; `options` are for this start only."""
        for _ in range(_LAUNCHES):
            self.launch(*options)
            if not wait or self._answers():
                return self
        raise ServerNotFound(f"{self.binary.path} does not start; its last words: {last_words(self.log)}")

    def launch(self, *options: str) -> None:
        """Starts the process and does not wait. `start` also tries another port if the port is
        taken."""
        assert not self.is_running, f"{self.url} runs already"
        config = self.folder / "server.conf"
        if not config.exists():
            if self.tcp and not self.port:
                # Below the range that the kernel gives out by itself, also with the 10,000 that a
                # cluster adds for its bus.
                self.port = random.randrange(12_000, 22_000)
            config.write_text(configuration(self._all_options()))
        words = [str(self.binary.path), str(config), *(("--sentinel",) if self._sentinel else ()), *options]
        process = self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WHEN_WATCHED, "server", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
        )
        guard.watch(process.pid)
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(b"watched\n")

    def wait_until_ready(self) -> None:
        """Returns when a launched server answers, which may be at another port if its port was
        taken."""
        if not self._answers():
            self.start()

    def kill(self) -> None:
        """Ends the server at once, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the server in order: it saves what it is configured to save."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Freezes the server (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Lets a frozen server go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **options: Any) -> Any:
        """A blocking client of redis-py, as the user
        who may do everything. The caller closes it."""
        login = self.login
        user, password = (login.user, login.password) if login is not None else (None, self._required_password)
        return control_client(str(self.socket), user=user, password=password, **options)

    def run(self, *command: str | bytes | int) -> Any:
        """Sends one command on a connection of its own. Returns the answer."""
        with self.client() as client:
            return client.execute_command(*command)

    def close(self) -> None:
        """Kills the server and removes its folder. Safe to repeat."""
        if self.is_running:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _required_password(self) -> str | None:
        options = self._options
        return options[options.index("--requirepass") + 1] if "--requirepass" in options else None

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        assert process is not None, "the server was not started"
        if process.poll() is None:
            os.killpg(process.pid, number)
            if number is not signal.SIGKILL:
                # A paused server ends only after it was woken.
                os.killpg(process.pid, signal.SIGCONT)
            process.wait(_PATIENCE_SECONDS)
        guard.release(process.pid)

    def _answers(self) -> bool:
        """False if the server has ended: then another port may be free."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause = 0.002
        while time.monotonic() < deadline:
            if not self.is_running:
                guard.release(self.pid)
                self._take_another_port()
                return False
            if ask(str(self.socket)) is EngineAnswer.SERVING:
                self._may_change_port = False
                return True
            time.sleep(pause)
            pause = min(pause * 1.25, 0.05)
        raise ServerNotFound(f"{self.binary.path} does not answer; its last words: {last_words(self.log)}")

    def _take_another_port(self) -> None:
        """Before the first answer nobody knows the port.
        A restart keeps it, since others know it."""
        if self.tcp and self._may_change_port:
            self.port = 0
            (self.folder / "server.conf").unlink(missing_ok=True)

    def _all_options(self) -> list[str]:
        options = ["--unixsocket", str(self.socket), "--dir", str(self.folder), "--logfile", str(self.log)]
        options += ["--bind", HOST, "--protected-mode", "no"]
        if self.certificates is None:
            options += ["--port", str(self.port)]
        else:
            options += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            options += ["--tls-cert-file", str(self.certificates.certificate)]
            options += ["--tls-key-file", str(self.certificates.key)]
            options += ["--tls-ca-cert-file", str(self.certificates.authority), "--tls-replication", "yes"]
        if not self._sentinel:
            # A replica need not wait for further replicas.
            options += ["--save", "", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"]
        return [*options, *self._options]


def configuration(options: Sequence[str]) -> str:
    """The lines of a configuration file for options of a command line."""
    lines: list[list[str]] = []
    for word in options:
        if word.startswith("--"):
            lines.append([word.removeprefix("--")])
        else:
            lines[-1].append('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "".join(" ".join(line) + "\n" for line in lines)
