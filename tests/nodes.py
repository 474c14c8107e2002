"""Commands to all nodes of a docket's server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docket import Docket


async def on_every_node(docket: Docket, *words: str | bytes) -> list[Any]:
    """The answers of all nodes of a cluster, or of the one server."""
    async with docket.redis() as client:
        redis: Any = client
        if not docket.server.is_cluster:
            return [await redis.execute_command(*words)]
        await redis.initialize()
        return [await node.execute_command(*words) for node in redis.get_nodes()]


async def keys_like(docket: Docket, pattern: str) -> list[bytes]:
    """The keys with such a name on all nodes. `KEYS` of redis-py asks one node of a cluster."""
    async with docket.redis() as redis:
        found = [key async for key in redis.scan_iter(match=pattern, count=1000)]
    return sorted({key if isinstance(key, bytes) else key.encode() for key in found})


def flattened(reply: Any) -> Iterator[Any]:
    """The values in an answer, whether redis-py has put them into pairs or not."""
    if isinstance(reply, (list, tuple)):
        for part in reply:
            yield from flattened(part)
    else:
        yield reply
