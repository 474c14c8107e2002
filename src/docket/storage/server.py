"""One server as docket uses it: a handful of connections, scripts by digest, errors that explain themselves."""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import redis
import redis.asyncio as aioredis
from redis.asyncio.connection import AbstractConnection, BlockingConnectionPool
from redis.asyncio.connection import Connection as AsyncConnection
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnixConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import NoScriptError
from redis.retry import Retry
from redis.sentinel import Sentinel

from docket.model.clock import TaskClock, shared_clock
from docket.model.errors import ServerUnsuitable

from .embedded import FolderEngine, memory_engine
from .faults import SERVER_ERRORS, translate
from .lines import Lines
from .scripts import Script, load
from .urls import Address, Kind, hide_password, parse

logger = logging.getLogger("docket.worker")

# Ordinary traffic is batched, so a handful of connections serve any concurrency.
CONNECTIONS = 8
# How long an answer may take before the connection counts as dead.
ANSWER_SECONDS = 5.0
# How long the server may hold a blocking read.
BLOCK_SECONDS = 5.0
OLDEST_SERVER = (6, 2)


class Server:
    """The connections of one docket to its server. An async context manager."""

    def __init__(self, url: str, credential_provider: CredentialProvider | None = None) -> None:
        self.url = url
        self.shown_url = hide_password(url)
        self.address: Address = parse(url)
        self.database = self.address.database
        self.clock = shared_clock(self.address.name) if self.address.kind is Kind.MEMORY else TaskClock()
        self._credentials = credential_provider
        self._stack = AsyncExitStack()
        self._engine: FolderEngine | None = None
        self._lines: Lines | None = None
        self._pools: weakref.WeakSet[Any] = weakref.WeakSet()
        self.client: Any = None

    @property
    def is_cluster(self) -> bool:
        return self.address.kind is Kind.CLUSTER

    async def __aenter__(self) -> Server:
        self._stack = AsyncExitStack()
        try:
            await self._locate()
            self.client = self.new_client(CONNECTIONS, ANSWER_SECONDS)
            self._stack.push_async_callback(self.client.aclose)
            await self._greet()
            if not self.is_cluster:
                self._lines = Lines(self.new_client(1, None), CONNECTIONS, ANSWER_SECONDS)
                self._stack.push_async_callback(self._lines.aclose)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def run(self, script: str, keys: Sequence[bytes], *args: bytes | str) -> Any:
        """Runs a script by its digest; loads it first where the server does not know it."""
        if self.clock.script_keys:
            keys = [*keys, *self.clock.script_keys]
        try:
            if self._lines is not None:
                return await self._lines.run(load(script), keys, args)
            return await self._run_on_cluster(load(script), keys, args)
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    async def _run_on_cluster(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str]) -> Any:
        try:
            return await self.client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self.client.execute_command("EVAL", script.source, len(keys), *keys, *args)

    def run_blocking(self, client: Any, script: str, keys: Sequence[bytes], *args: bytes | str) -> Any:
        """The same on a client of threaded_client(), for code outside the event loop."""
        loaded = load(script)
        try:
            try:
                return client.execute_command("EVALSHA", loaded.sha, len(keys), *keys, *args)
            except NoScriptError:
                return client.execute_command("EVAL", loaded.source, len(keys), *keys, *args)
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    async def warn_of_eviction(self) -> None:
        """A server that may evict keys may delete work: said loudly, once per worker."""
        try:
            found = await self.client.config_get("maxmemory-policy")
        except SERVER_ERRORS:
            # Managed servers often forbid CONFIG; then there is nothing to say.
            return
        policy = str(found.get("maxmemory-policy") or found.get(b"maxmemory-policy") or "")
        if policy and not policy.startswith(("noeviction", "volatile")):
            logger.warning(
                "%s has maxmemory-policy %s: when memory runs short it will delete tasks that wait. Set it to noeviction",
                self.shown_url, policy,
            )  # fmt: skip

    def explain(self, error: BaseException) -> BaseException:
        return translate(error, self.shown_url) or error

    async def revive(self) -> None:
        """After a lost connection: others that lie idle are not trusted either, and an embedded engine that died is started
        again with its data."""
        if self._lines is not None:
            await self._lines.hang_up_idle()
        if self._engine is None:
            return
        found = await asyncio.to_thread(self._engine.ensure)
        self.address = Address(self.address.kind, {"path": found.socket_path}, found.database)
        for pool in self._pools:
            pool.connection_kwargs["path"] = found.socket_path

    def new_client(self, connections: int, answer_seconds: float | None) -> Any:
        """An asyncio client with a pool of its own; it waits for a free connection instead of failing."""
        options = self._options(answer_seconds)
        if self.is_cluster:
            return aioredis.RedisCluster(ssl=self.address.tls, retry=AsyncRetry(NoBackoff(), 0), **_cluster(options))
        options["retry"] = AsyncRetry(NoBackoff(), 0)
        if self.address.kind is Kind.SENTINEL:
            sentinel = AsyncSentinel(
                self.address.sentinels,
                sentinel_kwargs=dict(self.address.sentinel_options),
                ssl=self.address.tls,
                **options,
            )
            return cast(Any, sentinel).master_for(self.address.service)
        most = int(options.pop("max_connections", 0) or connections)
        pool = BlockingConnectionPool(
            max_connections=max(most, connections),
            timeout=None,
            connection_class=_connection_class(self.address),
            **options,
        )
        self._pools.add(pool)
        return aioredis.Redis.from_pool(pool)

    async def blocking_client(self, key: str) -> Any:
        """A client for blocking reads of one key, on the node that has it. The reader sets the deadline itself."""
        if not self.is_cluster:
            return self.new_client(1, None)
        return await self._node_client(key, None)

    async def subscription_client(self) -> Any:
        """A client for subscriptions; any node of a cluster hears all channels. Silence is normal, so reads have no
        deadline of their own: pings show that the connection lives."""
        return await self._node_client(None, None) if self.is_cluster else self.new_client(1, None)

    def threaded_client(self, answer_seconds: float) -> Any:
        """A blocking client for use in a thread."""
        options = self._options(answer_seconds)
        options["socket_connect_timeout"] = answer_seconds
        options.pop("max_connections", None)
        retry = Retry(NoBackoff(), 0)
        if self.is_cluster:
            return redis.RedisCluster(ssl=self.address.tls, retry=retry, **_cluster(options))
        options["retry"] = retry
        if self.address.kind is Kind.SENTINEL:
            sentinel = Sentinel(
                self.address.sentinels,
                sentinel_kwargs=dict(self.address.sentinel_options),
                ssl=self.address.tls,
                **options,
            )
            return cast(Any, sentinel).master_for(self.address.service)
        if "path" in options:
            options["unix_socket_path"] = options.pop("path")
        return redis.Redis(ssl=self.address.tls, **options)

    async def _node_client(self, key: str | None, answer_seconds: float | None) -> Any:
        await self.client.initialize()
        node = self.client.get_node_from_key(key) if key is not None else random.choice(self.client.get_primaries())
        options = self._options(answer_seconds)
        options.pop("max_connections", None)
        options.update(host=node.host, port=node.port, retry=AsyncRetry(NoBackoff(), 0))
        pool_class = AsyncSSLConnection if self.address.tls else AsyncConnection
        return aioredis.Redis.from_pool(
            BlockingConnectionPool(max_connections=1, timeout=None, connection_class=pool_class, **options)
        )

    def _options(self, answer_seconds: float | None) -> dict[str, Any]:
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": ANSWER_SECONDS,
            **self.address.options,
        }
        if answer_seconds is None:
            options["socket_timeout"] = None
        else:
            options["socket_timeout"] = max(float(options.get("socket_timeout") or 0), answer_seconds)
        options["db"] = self.database
        if self._credentials is not None:
            options["credential_provider"] = self._credentials
        return options

    async def _locate(self) -> None:
        # From the URL each time: an engine that is entered again may have another address.
        self.address = parse(self.url)
        if self.address.kind is Kind.MEMORY:
            engine = await asyncio.to_thread(memory_engine, self.address.name)
        elif self.address.kind is Kind.FOLDER:
            assert self.address.folder is not None
            self._engine = FolderEngine(self.address.folder)
            engine = await asyncio.to_thread(self._engine.start)
            self._stack.push_async_callback(asyncio.to_thread, self._engine.stop)
        else:
            return
        self.database = engine.database
        self.address = Address(self.address.kind, {"path": engine.socket_path}, engine.database)

    async def _greet(self) -> None:
        try:
            info = await self.client.info("server")
        except (*SERVER_ERRORS, TypeError) as error:
            if isinstance(error, TypeError):
                raise ServerUnsuitable(f"{self.shown_url}: bad option in the URL: {error}") from error
            raise self.explain(error) from error
        if self.is_cluster:
            info = next(iter(info.values())) if info and isinstance(next(iter(info.values())), dict) else info
        self.engine_name = "valkey" if "valkey_version" in info else "redis"
        self.engine_version = str(info.get("valkey_version") or info.get("redis_version"))
        if tuple(int(n) for n in str(info.get("redis_version", "7.2")).split(".")[:2]) < OLDEST_SERVER:
            raise ServerUnsuitable(
                f"{self.shown_url}: server {self.engine_version} is too old; docket needs Redis 6.2 or Valkey 7.2"
            )


def _connection_class(address: Address) -> type[AbstractConnection]:
    if "path" in address.options:
        return AsyncUnixConnection
    return AsyncSSLConnection if address.tls else AsyncConnection


def _cluster(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "db"}
