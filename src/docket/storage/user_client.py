"""The client of redis-py that users get from a docket.
docket itself keeps plain connections to one node."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from .urls import Address, ServerKind


def user_client(address: Address, options: dict[str, Any], stack: AsyncExitStack) -> Any:
    """The client of a cluster or of a master behind sentinels; None for any other server."""
    if address.kind is ServerKind.CLUSTER:
        options.pop("db")
        return aioredis.RedisCluster(ssl=address.tls, retry=Retry(NoBackoff(), 0), **options)
    if address.kind is not ServerKind.SENTINEL:
        return None
    sentinel: Any = Sentinel(
        address.sentinels,
        sentinel_kwargs=_to_sentinels(address, options),
        ssl=address.tls,
        retry=Retry(NoBackoff(), 0),
        **options,
    )
    for client in sentinel.sentinels:
        stack.push_async_callback(client.aclose)
    return sentinel.master_for(address.service)


def _to_sentinels(address: Address, options: dict[str, Any]) -> dict[str, Any]:
    """The options for connections to the sentinels: a login of their own, and the same TLS, since
    their password must not travel in the clear either."""
    shared = {name: value for name, value in options.items() if name.startswith(("ssl_", "socket_", "protocol"))}
    return {**shared, **address.sentinel_options, "ssl": address.tls, "retry": Retry(NoBackoff(), 0)}
