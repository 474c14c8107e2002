"""Commands to all nodes of a docket's server, and to the one that has the docket."""

from __future__ import annotations

import re
from collections import Counter
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


async def reset_command_counts(docket: Docket) -> None:
    await docket.server.ask(docket.keys.root, "CONFIG", "RESETSTAT")


async def command_counts(docket: Docket) -> Counter[str]:
    """How often each command ran on the docket's node, those in scripts included. `INFO` of
    redis-py asks any node of a cluster."""
    info: bytes = await docket.server.ask(docket.keys.root, "INFO", "commandstats")
    return Counter({name: int(calls) for name, calls in re.findall(r"cmdstat_(\S+?):calls=(\d+)", info.decode())})


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
