"""Real servers for tests, without containers: one server, a primary with replicas, a cluster, or a
primary behind sentinels, each with TLS or ACL if wanted.

`python -m docket.testing.servers cluster` starts them for other programs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .binaries import Binary, ServerNotFound, find_binaries, find_binary
from .certificates import Certificates, make_certificates
from .cluster import Cluster
from .groups import ReplicaGroup, ServerGroup, Standalone
from .migration import SlotMigration
from .process import Login, ServerProcess
from .sentinels import Sentinels

KINDS: dict[str, type[ServerGroup]] = {group.kind: group for group in (Standalone, ReplicaGroup, Cluster, Sentinels)}


def servers_of(
    kind: str, *options: str, binary: Binary | str | Path | None = None, tls: bool = False, acl: bool = False
) -> ServerGroup:
    """The servers of a kind (`standalone`, `replica`, `cluster`, `sentinel`), which start when they
    are entered: `with servers_of("cluster") as cluster: …`."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not a kind of server: use one of {', '.join(KINDS)}")
    more: dict[str, Any] = {"binary": binary, "tls": tls, "acl": acl}
    return KINDS[kind](*options, **more)


__all__ = [
    "KINDS",
    "Binary",
    "Certificates",
    "Cluster",
    "Login",
    "ReplicaGroup",
    "Sentinels",
    "ServerGroup",
    "ServerNotFound",
    "ServerProcess",
    "SlotMigration",
    "Standalone",
    "find_binaries",
    "find_binary",
    "make_certificates",
    "servers_of",
]
