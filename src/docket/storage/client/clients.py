"""The clients of redis-py through which docket and its users talk to one server."""

from __future__ import annotations

import select
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import redis
import redis.asyncio as aioredis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.retry import Retry

from docket.storage.keys import text_bytes

from .nodes import NodeAddress, Nodes
from .redis_py import ThreadedClient, async_class
from .urls import Address, ServerKind

# Ordinary traffic is batched, so a handful of connections serve any concurrency.
CONNECTIONS = 8
# Options of the URL that concern pools, or that would
# let a command of a thread exceed its patience.
_NOT_IN_THREADS = ("max_connections", "health_check_interval", "retry_on_timeout", "retry_on_error")


class Clients:
    """Makes clients with the options of the URL."""

    def __init__(
        self, address: Address, credentials: CredentialProvider | None, answer_seconds: float, name: str
    ) -> None:
        """`name` is the docket's. The names of asyncio tasks begin with it."""
        self.name: str = name
        self.address: Address = address
        self.database: int = address.database
        self._answer_seconds = answer_seconds
        self._credentials = credentials
        self._pools: weakref.WeakSet[Any] = weakref.WeakSet()

    def move(self, socket_path: str, database: int) -> None:
        """Connections that open from now on go to an embedded engine at that path."""
        self.address = Address(self.address.kind, {"path": socket_path}, database)
        self.database = database
        for pool in self._pools:
            pool.connection_kwargs["path"] = socket_path

    def options(self, *, answer_limit: bool = True) -> dict[str, Any]:
        """The options of a connection. With `answer_limit` redis-py limits the time for an answer;
        docket's own pipelines do that themselves."""
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": self._answer_seconds,
            **self.address.options,
        }
        if answer_limit:
            options["socket_timeout"] = max(float(options.get("socket_timeout") or 0), self._answer_seconds)
        else:
            options["socket_timeout"] = None
        options["db"] = self.database
        if self._credentials is not None:
            options["credential_provider"] = self._credentials
        return options

    def user_client(self, stack: AsyncExitStack) -> Any:
        """The client that users get from a docket; the stack closes it."""
        client = user_client(self.address, self.options(), stack) or self._pooled(CONNECTIONS, self.options())
        stack.push_async_callback(client.aclose)
        return client

    def node_client(self, address: NodeAddress | None) -> Any:
        """An asyncio client with one connection, to that node or to the only server there is."""
        options = self.options(answer_limit=False)
        if address is not None:
            options.update(host=address[0], port=address[1])
        return self._pooled(1, options)

    def sentinel_client(self, address: NodeAddress, options: Mapping[str, Any]) -> Any:
        """An asyncio client of a sentinel, with the options of sentinels."""
        pool = aioredis.ConnectionPool(
            connection_class=async_class(self.address),
            host=address[0],
            port=address[1],
            protocol=2,
            socket_connect_timeout=self._answer_seconds,
            **options,
        )
        return aioredis.Redis.from_pool(pool)

    def _pooled(self, connections: int, options: dict[str, Any]) -> Any:
        """A client with a pool of its own. A command waits for a free connection instead of
        failing."""
        options["retry"] = AsyncRetry(NoBackoff(), 0)
        most = int(options.pop("max_connections", 0) or connections)
        pool = BlockingConnectionPool(
            max_connections=max(most, connections),
            timeout=None,
            connection_class=async_class(self.address),
            **options,
        )
        self._pools.add(pool)
        return aioredis.Redis.from_pool(pool)

    def threaded_client(
        self, nodes: Nodes | None, key: str, patience: Callable[[], float], outages: Callable[[], int]
    ) -> ThreadedClient:
        """A blocking client for the node that has the key."""

        def options(seconds: float) -> dict[str, Any]:
            found = {**self.options(answer_limit=False), "retry": Retry(NoBackoff(), 0)}
            for name in _NOT_IN_THREADS:
                found.pop(name, None)
            if nodes is not None:
                # The other half of the time is for the node itself.
                address = nodes.find(nodes.slot(text_bytes(key)), seconds / 2)
                found.update(host=address[0], port=address[1])
            return found

        return ThreadedClient(self.address, options, patience, outages)


def user_client(address: Address, options: dict[str, Any], stack: AsyncExitStack) -> Any:
    """The client of a cluster or of a master behind sentinels; None for any other server."""
    if address.kind is ServerKind.CLUSTER:
        options.pop("db")
        return aioredis.RedisCluster(ssl=address.tls, retry=AsyncRetry(NoBackoff(), 0), **options)
    if address.kind is not ServerKind.SENTINEL:
        return None
    sentinel: Any = Sentinel(
        address.sentinels,
        sentinel_kwargs=_to_sentinels(address, options),
        ssl=address.tls,
        retry=AsyncRetry(NoBackoff(), 0),
        **options,
    )
    for client in sentinel.sentinels:
        stack.push_async_callback(client.aclose)
    return sentinel.master_for(address.service)


def _to_sentinels(address: Address, options: dict[str, Any]) -> dict[str, Any]:
    """The options for connections to the sentinels: a login of their own, and the same TLS, since
    their password must not travel in the clear either."""
    shared = {name: value for name, value in options.items() if name.startswith(("ssl_", "socket_", "protocol"))}
    return {**shared, **address.sentinel_options, "ssl": address.tls, "retry": AsyncRetry(NoBackoff(), 0)}


# After a pause this long the caller opens a new connection: a firewall may have dropped the old one
# silently.
_LONGEST_IDLE_SECONDS = 60.0


class CallerClient:
    """Sends commands, one at a time. It notices before a command if the server has closed the
    connection meanwhile: after the command, nobody could tell whether it arrived."""

    def __init__(self, client: ThreadedClient) -> None:
        self._client = client
        self._used_at = 0.0

    def execute_command(self, *words: Any) -> Any:
        """Raises the errors of redis-py. After any error the next command opens a new
        connection."""
        now = time.monotonic()
        if now - self._used_at > _LONGEST_IDLE_SECONDS or self._has_news():
            self._client.close()
        self._used_at = now
        try:
            return self._client.execute_command(*words)
        except BaseException as error:
            if not isinstance(error, Exception):
                # The caller was interrupted, and the answer is still to come.
                self._client.close()
            raise

    def close(self) -> None:
        self._client.close()

    def _has_news(self) -> bool:
        """Whether there is something to read. No answer is open, so that is the end of the
        connection."""
        socket = self._client.open_socket
        if socket is None:
            return False
        poll = select.poll()
        poll.register(socket, select.POLLIN)
        return bool(poll.poll(0))


def control_client(socket_path: str, *, user: str | None = None, password: str | None = None, **options: Any) -> Any:
    """A client that reports the first error instead of trying again. The caller closes it."""
    return redis.Redis(
        unix_socket_path=socket_path,
        username=user,
        password=password,
        retry=Retry(NoBackoff(), 0),
        **options,
    )
