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


def flattened(reply: Any) -> Iterator[Any]:
    """The values in an answer, whether redis-py has put them into pairs or not."""
    if isinstance(reply, (list, tuple)):
        for part in reply:
            yield from flattened(part)
    else:
        yield reply
