"""Reads the name and version of a server."""

from __future__ import annotations

from docket.errors import ServerUnsuitable

OLDEST_SERVER = (6, 2)


def server_version(text: bytes, where: str) -> tuple[str, str]:
    """The server's name and version, from the answer to `INFO server`. Raises ServerUnsuitable if
    docket cannot use it."""
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    info = {name: value for name, colon, value in lines if colon}
    name = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get("valkey_version") or info.get("redis_version"))
    if tuple(int(n) for n in str(info.get("redis_version", "7.2")).split(".")[:2]) < OLDEST_SERVER:
        raise ServerUnsuitable(f"{where}: server {version} is too old; docket needs Redis 6.2 or Valkey 7.2")
    return name, version
