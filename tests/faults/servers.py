"""Servers that a test may kill, pause, starve and misconfigure."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from docket.storage.embedded import find_server
from tests.waiting import SECONDS

_numbers = itertools.count()


class Server:
    """One server in a folder of its own, on a socket (or on a port, where a test needs TCP)."""

    def __init__(self, folder: Path, *options: str, tcp: bool = False, sentinel: bool = False, port: int = 0) -> None:
        self.folder = folder / f"server{next(_numbers)}"
        self.folder.mkdir()
        self.socket = self.folder / "s"
        self.port = port
        self._tcp = tcp or sentinel
        self._options = options
        self._password = options[options.index("--requirepass") + 1] if "--requirepass" in options else None
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self._tcp else f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Starts it, again if need be, with the data it has."""
        for _ in range(20):
            self._launch()
            if not wait or self._answers():
                return
        raise AssertionError(f"the server does not start: {self._log.read_text()[-2000:]}")

    def start_loading_slowly(self) -> None:
        """Starts it with the data it has, a tenth of a second for each key."""
        slowly = ("--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024")
        self._options, options = (*self._options, *slowly), self._options
        try:
            self.start(wait=False)
        finally:
            self._options = options

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(SECONDS)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **options: Any) -> Any:
        place = {"host": "127.0.0.1", "port": self.port} if self._tcp else {"unix_socket_path": str(self.socket)}
        return redis.Redis(**place, password=self._password, retry=Retry(NoBackoff(), 0), **options)

    def run(self, *command: str | int) -> Any:
        """One command on a connection of its own."""
        with self.client() as client:
            return client.execute_command(*command)

    def memory_used(self) -> int:
        with self.client() as client:
            return int(client.info("memory")["used_memory"])

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.wake()
            self.kill()

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _launch(self) -> None:
        if self._tcp and not self.port:
            # Below the range that the kernel gives out by itself; with a cluster's bus port
            # (+10000) below 32768 too.
            self.port = random.randrange(12_000, 22_000)
        place = ["--port", str(self.port)] if self._tcp else ["--port", "0", "--unixsocket", str(self.socket)]
        words = [str(find_server()), *place, "--dir", str(self.folder), "--logfile", str(self._log)]
        if self._sentinel:
            config = self.folder / "sentinel.conf"
            if not config.exists():
                config.write_text("")
            words[1:1] = [str(config), "--sentinel"]
        else:
            words += ["--save", "", "--maxmemory-policy", "noeviction"]
        self._process = subprocess.Popen(
            [*words, *self._options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _answers(self) -> bool:
        """False if it ended: then another port may be free."""
        assert self._process is not None
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self.port = 0
                return False
            try:
                if int(self._who()) == self._process.pid:
                    return True
            except redis.RedisError:
                pass
            time.sleep(0.01)
        return False

    def _who(self) -> str:
        """The pid of the server that answers: on a taken port it would be somebody else's."""
        with self.client(decode_responses=True) as client:
            return str(client.info("server")["process_id"])
