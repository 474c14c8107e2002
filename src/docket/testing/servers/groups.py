"""Servers that belong together: one alone, or a primary with its replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .binaries import Binary, ServerNotFound, find_binary
from .certificates import Certificates, make_certificates
from .guard import guard
from .process import HOST, Login, ServerProcess

_PATIENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Variant:
    """The properties that all servers of a group share."""

    binary: Binary
    certificates: Certificates | None = None
    login: Login | None = None
    options: tuple[str, ...] = ()

    def server(self, *options: str, sentinel: bool = False) -> ServerProcess:
        login = None if sentinel else self.login
        more = () if sentinel else self.options
        return ServerProcess(
            *more,
            *options,
            binary=self.binary,
            tcp=True,
            login=login,
            certificates=self.certificates,
            sentinel=sentinel,
        )


class ServerGroup:
    """Servers that start and end together. A context manager.

    `binary` is a program or the beginning of its name (`redis-6.2`), `tls` and `acl` switch these
    on, and `options` go to every server, except sentinels. Raises ServerNotFound if this machine
    lacks what is needed.
    """

    kind: str = ""

    def __init__(
        self, *options: str, binary: Binary | str | Path | None = None, tls: bool = False, acl: bool = False
    ) -> None:
        found = binary if isinstance(binary, Binary) else find_binary(binary)
        certificates = make_certificates(guard.new_folder()) if tls else None
        self.variant: Variant = Variant(found, certificates, Login() if acl else None, options)
        self.servers: list[ServerProcess] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL for a docket."""
        raise NotImplementedError

    def database_url(self, database: int) -> str:
        """The URL of one of its databases, of which there are 10,000; a cluster has only number
        0."""
        raise NotImplementedError

    def start(self) -> Self:
        """Starts all servers, and waits until they work together."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kills all servers and removes their data. Safe to repeat."""
        for server in self.servers:
            server.close()

    def _start(self) -> None:
        raise NotImplementedError

    def _launch(self, count: int, *options: str) -> list[ServerProcess]:
        """Starts servers side by side."""
        servers = [self.variant.server("--databases", "10000", *options) for _ in range(count)]
        self.servers.extend(servers)
        start_all(servers)
        return servers


class Standalone(ServerGroup):
    """One server."""

    kind = "standalone"

    @property
    def primary(self) -> ServerProcess:
        """The server that was started as the primary."""
        return self.servers[0]

    @property
    def url(self) -> str:
        return self.primary.url

    def database_url(self, database: int) -> str:
        before, after = self.url.split("/0", 1)
        return f"{before}/{database}{after}"

    def _start(self) -> None:
        self._launch(1)


class ReplicaGroup(Standalone):
    """A primary and its replicas, one by default. Its URL is that of the primary."""

    kind = "replica"

    def __init__(self, *options: str, replicas: int = 1, **variant: Any) -> None:
        super().__init__(*options, **variant)
        self._count = replicas

    @property
    def replicas(self) -> list[ServerProcess]:
        """The servers that were started as replicas."""
        return self.servers[1:]

    def _start(self) -> None:
        self._launch(1 + self._count)
        for replica in self.replicas:
            follow(replica, self.primary)
        wait_until(lambda: all(is_in_sync(replica) for replica in self.replicas), "all replicas have the data")


def start_all(servers: Sequence[ServerProcess]) -> None:
    for server in servers:
        server.launch()
    for server in servers:
        server.wait_until_ready()


def follow(replica: ServerProcess, primary: ServerProcess) -> None:
    """Makes a server the replica of another one."""
    replica.run("REPLICAOF", HOST, primary.port)
    # A restart finds it in the file, whatever the server was told in between.
    replica.run("CONFIG", "REWRITE")


def is_in_sync(replica: ServerProcess) -> bool:
    """Whether a replica has received everything that its primary had when it connected."""
    with replica.client() as client:
        return client.info("replication").get("master_link_status") == "up"


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Raises ServerNotFound if the condition does not become true. The limit ends what hangs."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ServerNotFound(f"after {_PATIENCE_SECONDS:g} s still not: {what}")
        time.sleep(_PAUSE_SECONDS)
