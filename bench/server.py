"""The server of a run: one of its own, on a free port
of the loopback, with nothing written to disk."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import ConnectionError as RedisConnectionError
from redis import Redis

from docket.storage.embedded import find_server

START_SECONDS = 30.0
QUIET_SECONDS = 10.0


@dataclass(frozen=True)
class Reading:
    """The server's counters at one moment."""

    commands: int
    reads: int
    bytes_in: int
    bytes_out: int
    cpu_seconds: float
    memory_bytes: int

    def since(self, earlier: Reading) -> Reading:
        """What happened in between; the later reading itself is not counted."""
        return Reading(
            self.commands - earlier.commands - 1,
            self.reads - earlier.reads - 1,
            self.bytes_in - earlier.bytes_in,
            self.bytes_out - earlier.bytes_out,
            self.cpu_seconds - earlier.cpu_seconds,
            self.memory_bytes - earlier.memory_bytes,
        )


class BenchServer:
    """A running server, seen through one connection that stays open."""

    def __init__(self, port: int) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self._redis: Any = Redis(host="127.0.0.1", port=port)

    def wait_until_up(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._redis.ping()
            except RedisConnectionError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def describe(self) -> str:
        info = self._redis.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        return f"{name} {info.get('valkey_version', info.get('redis_version'))}"

    def read(self) -> Reading:
        # One command, so that a reading costs the same whatever it contains.
        info = self._redis.info("everything")
        return Reading(
            commands=info["total_commands_processed"],
            reads=info["total_reads_processed"],
            bytes_in=info["total_net_input_bytes"],
            bytes_out=info["total_net_output_bytes"],
            cpu_seconds=info["used_cpu_user"] + info["used_cpu_sys"],
            memory_bytes=info["used_memory"] - info["mem_clients_normal"],
        )

    def wait_until_alone(self) -> None:
        """Until every other connection is closed; they cost memory too."""
        deadline = time.monotonic() + QUIET_SECONDS
        while self._redis.info("clients")["connected_clients"] > 1 and time.monotonic() < deadline:
            time.sleep(0.01)

    def clear(self) -> None:
        """Waits until everybody has left, then forgets
        everything; the memory is free when this returns."""
        self.wait_until_alone()
        self._redis.execute_command("FLUSHALL", "SYNC")
        while self._redis.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.01)


@contextmanager
def running_server(folder: Path, prefix: Sequence[str] = ()) -> Generator[BenchServer, None, None]:
    """A server of its own. With a prefix, another program, such as a profiler, runs the server."""
    port = _free_port()
    options = ("--save", "", "--appendonly", "no", "--maxclients", "10000", "--maxmemory-policy", "noeviction")
    command = [*prefix, str(find_server()), "--port", str(port), "--bind", "127.0.0.1", *options]
    with folder.joinpath("server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        server = BenchServer(port)
        server.wait_until_up(process)
        yield server
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
