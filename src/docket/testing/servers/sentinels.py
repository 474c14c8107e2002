"""A primary with replicas, and sentinels that watch them."""

from __future__ import annotations

import secrets
from typing import Any

from .groups import ReplicaGroup, start_all, wait_until
from .process import HOST, ServerProcess

SERVICE = "main"
_PASSWORD = "sentinel-secret"


class Sentinels(ReplicaGroup):
    """One primary, two replicas and three sentinels, by default.

    `servers` are the primary, the replicas and the sentinels, in that order; `current_primary()`
    asks the sentinels, so it is right after a fail-over too. With `acl` the sentinels have a
    password of their own.
    """

    kind = "sentinel"

    def __init__(
        self,
        *options: str,
        replicas: int = 2,
        sentinels: int = 3,
        down_after_ms: int = 500,
        failover_timeout_ms: int = 3000,
        **variant: Any,
    ) -> None:
        super().__init__(*options, replicas=replicas, **variant)
        self._sentinel_count = sentinels
        self._down_after_ms = down_after_ms
        self._failover_timeout_ms = failover_timeout_ms

    @property
    def data_servers(self) -> list[ServerProcess]:
        """The primary and its replicas."""
        return self.servers[: 1 + self._count]

    @property
    def replicas(self) -> list[ServerProcess]:
        """The servers that began as replicas."""
        return self.data_servers[1:]

    @property
    def sentinels(self) -> list[ServerProcess]:
        """The sentinels."""
        return self.servers[1 + self._count :]

    @property
    def url(self) -> str:
        return self.database_url(0)

    def database_url(self, database: int) -> str:
        login, certificates = self.variant.login, self.variant.certificates
        # The certificate is for both names.
        hosts = ",".join(f"{'localhost' if certificates else HOST}:{sentinel.port}" for sentinel in self.sentinels)
        options = [f"ssl_ca_certs={certificates.authority}"] if certificates is not None else []
        options += [f"sentinel_password={_PASSWORD}"] if login is not None else []
        user = f"{login.user}:{login.password}@" if login is not None else ""
        scheme = "redis+sentinel" if certificates is None else "rediss+sentinel"
        return f"{scheme}://{user}{hosts}/{SERVICE}/{database}" + ("?" + "&".join(options) if options else "")

    def current_primary(self) -> ServerProcess:
        """The server that the sentinels name."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.is_running)
        port = int(sentinel.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
        return next(server for server in self.data_servers if server.port == port)

    def _start(self) -> None:
        super()._start()
        # Their ports have to be known before their files are written.
        self.servers.extend(self._sentinel() for _ in range(self._sentinel_count))
        start_all(self.sentinels)
        for sentinel in self.sentinels:
            self._tell(sentinel)
        wait_until(lambda: all(self._knows_everybody(sentinel) for sentinel in self.sentinels), "the sentinels agree")

    def _sentinel(self) -> ServerProcess:
        options = ["--sentinel", "myid", secrets.token_hex(20)]
        if self.variant.login is not None:
            options += ["--requirepass", _PASSWORD]
        return self.variant.server(*options, sentinel=True)

    def _tell(self, sentinel: ServerProcess) -> None:
        quorum = self._sentinel_count // 2 + 1
        sentinel.run("SENTINEL", "MONITOR", SERVICE, HOST, self.primary.port, quorum)
        settings: dict[str, str | int] = {
            "down-after-milliseconds": self._down_after_ms,
            "failover-timeout": self._failover_timeout_ms,
        }
        if (login := self.variant.login) is not None:
            settings |= {"auth-user": login.user, "auth-pass": login.password}
        for name, value in settings.items():
            sentinel.run("SENTINEL", "SET", SERVICE, name, value)

    def _knows_everybody(self, sentinel: ServerProcess) -> bool:
        return (
            len(sentinel.run("SENTINEL", "REPLICAS", SERVICE)) == self._count
            and len(sentinel.run("SENTINEL", "SENTINELS", SERVICE)) == self._sentinel_count - 1
        )
