"""One subscription connection per docket, shared by all who listen."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from .server import ANSWER_SECONDS, Server

Listener = Callable[[bytes], None]

# After this much silence the connection has to prove that it lives.
SILENCE_SECONDS = 20.0


class Subscriptions:
    """Channels, and who listens to them. Opened on first use.

    A lost connection is opened again with all channels; messages sent meanwhile are gone, so everybody who
    listens is told through `on_gap` to look for itself.
    """

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self._listeners: dict[bytes, list[Listener]] = {}
        self._gap_listeners: dict[int, Callable[[], None]] = {}
        self._pubsub: Any = None
        self._client: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._confirmed: dict[bytes, asyncio.Future[None]] = {}
        self._resubscribing: set[bytes] = set()
        self._closing = False

    async def listen(self, channel: bytes, listener: Listener) -> None:
        """Returns when the server has confirmed the subscription: whatever is published later is heard."""
        listeners = self._listeners.setdefault(channel, [])
        listeners.append(listener)
        if len(listeners) > 1:
            confirmation = self._confirmed.get(channel)
            if confirmation is not None:
                await asyncio.shield(confirmation)
            return
        confirmation = self._confirmed[channel] = asyncio.get_running_loop().create_future()
        try:
            async with self._lock:
                await self._connect()
                await self._send("subscribe", channel)
            await asyncio.wait_for(asyncio.shield(confirmation), ANSWER_SECONDS)
        except BaseException as error:
            self._drop(channel, listener)
            if isinstance(error, (RedisError, OSError, EOFError, TimeoutError)):
                raise self._server.explain(error) from error
            raise

    async def unlisten(self, channel: bytes, listener: Listener) -> None:
        if self._drop(channel, listener) and self._pubsub is not None:
            with contextlib.suppress(RedisError, OSError, EOFError):
                async with self._lock:
                    if channel not in self._listeners:
                        await self._send("unsubscribe", channel)

    def on_gap(self, owner: object, listener: Callable[[], None]) -> None:
        self._gap_listeners[id(owner)] = listener

    def forget_gap(self, owner: object) -> None:
        self._gap_listeners.pop(id(owner), None)

    async def aclose(self) -> None:
        self._closing = True
        if self._reader is not None:
            self._reader.cancel("docket closes")
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        await self._disconnect()

    def _drop(self, channel: bytes, listener: Listener) -> bool:
        listeners = self._listeners.get(channel)
        if listeners is None or listener not in listeners:
            return False
        listeners.remove(listener)
        if listeners:
            return False
        del self._listeners[channel]
        self._confirmed.pop(channel, None)
        return True

    async def _send(self, command: str, channel: bytes) -> None:
        await getattr(self._pubsub, command)(channel)

    async def _connect(self) -> None:
        if self._pubsub is not None:
            return
        self._client = await self._server.subscription_client()
        self._pubsub = self._client.pubsub()
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_forever(), name=f"{self._name} - subscriptions")

    async def _disconnect(self) -> None:
        pubsub, client, self._pubsub, self._client = self._pubsub, self._client, None, None
        for closeable in (pubsub, client):
            if closeable is not None:
                with contextlib.suppress(RedisError, OSError, EOFError):
                    await closeable.aclose()

    async def _read_forever(self) -> None:
        delay = 0.05
        while not self._closing:
            try:
                await self._read()
                delay = 0.05
            except (RedisError, OSError, EOFError):
                async with self._lock:
                    await self._disconnect()
                await asyncio.sleep(random.uniform(delay / 2, delay))
                delay = min(delay * 2, 5.0)
                with contextlib.suppress(RedisError, OSError, EOFError):
                    await self._resubscribe()

    async def _resubscribe(self) -> None:
        async with self._lock:
            await self._connect()
            channels = list(self._listeners)
            self._resubscribing = set(channels)
            if channels:
                await self._pubsub.subscribe(*channels)
                return
        self._tell_of_gap()

    def _tell_of_gap(self) -> None:
        for listener in list(self._gap_listeners.values()):
            listener()

    async def _read(self) -> None:
        """Handles messages until the connection fails. Silence is answered with a ping."""
        silent = False
        while True:
            pubsub = self._pubsub
            if pubsub is None or not pubsub.subscribed:
                await asyncio.sleep(0.05)
                continue
            message = await pubsub.get_message(timeout=SILENCE_SECONDS)
            if message is None:
                if silent:
                    raise EOFError("the subscription connection does not answer")
                silent = True
                async with self._lock:
                    await pubsub.ping()
                continue
            silent = False
            self._dispatch(message)

    def _dispatch(self, message: dict[str, Any]) -> None:
        channel = message["channel"]
        if message["type"] == "subscribe":
            confirmation = self._confirmed.pop(channel, None)
            if confirmation is not None and not confirmation.done():
                confirmation.set_result(None)
            if channel in self._resubscribing:
                self._resubscribing.discard(channel)
                if not self._resubscribing:
                    # Not before: whoever looked earlier could still miss what is published between.
                    self._tell_of_gap()
        elif message["type"] == "message":
            for listener in list(self._listeners.get(channel, ())):
                listener(message["data"])
