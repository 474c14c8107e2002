"""The line to one node: a connection that is opened when it is needed, and again when it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from docket._aio import cancel_and_wait

from .attempts import SharedAttempt
from .scripts import Script
from .pipeline import Pipeline


class Connection:
    """All calls to a node go over one connection, in the order in which they are made."""

    def __init__(self, client: Any, answer_seconds: float) -> None:
        self._client = client
        self._answer_seconds = answer_seconds
        self._wire: Pipeline | None = None
        self._connecting = SharedAttempt(self._connect, answer_seconds, "docket - connecting")
        self._given_up = self._closed = False

    @property
    def wire(self) -> Pipeline | None:
        """The connection that is open now."""
        return self._wire

    async def run(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str], patience: float | None = None
    ) -> Any:
        """Runs a script, which is loaded first where the server does not know it."""
        try:
            return await self.ask("EVALSHA", script.sha, len(keys), *keys, *args, patience=patience)
        except NoScriptError:
            return await self.ask("EVAL", script.source, len(keys), *keys, *args, patience=patience)

    async def ask(self, *words: bytes | str | int, patience: float | None = None) -> Any:
        """One command, answered as the server answers it."""
        wire = self._wire
        if wire is None or wire.trouble is not None:
            wire = await self.connect()
        try:
            return await wire.ask(words, patience or self._answer_seconds)
        except ReadOnlyError:
            # A master that became a replica: a new connection may find the new one behind the same name.
            self._retire(wire)
            raise

    async def connect(self) -> Pipeline:
        """The connection, which is opened if there is none. All callers share one attempt."""
        wire = self._wire
        if wire is None or wire.trouble is not None:
            wire = await self._connecting.join()
        return wire

    async def ask_alone(self, *words: bytes | str | int, patience: float = 1.0) -> Any:
        """One command with a large value, or for one, with so many times the usual patience. If the caller gives it up, so
        does the connection: the rest of it is not sent, and nobody waits behind it."""
        try:
            return await self.ask(*words, patience=self._answer_seconds * patience)
        except asyncio.CancelledError:
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            raise

    async def move(self, host: str, port: int) -> None:
        """From now on calls go to that node; those under way end where they began."""
        options = self._client.connection_pool.connection_kwargs
        if (options.get("host"), options.get("port")) == (host, port):
            return
        options.update(host=host, port=port)
        self.hang_up()

    async def aclose(self) -> None:
        self._closed = True
        self._connecting.stop()
        if self._wire is not None:
            self._wire.close()
        await self._client.aclose()

    def hang_up(self) -> None:
        """The next call opens a new connection."""
        self._given_up = True
        if self._wire is not None:
            self._retire(self._wire)

    def _retire(self, wire: Pipeline) -> None:
        wire.close_when_idle()
        if self._wire is wire:
            self._wire = None

    async def _connect(self) -> Pipeline:
        while self._wire is None or self._wire.trouble is not None:
            self._given_up = False
            wire = await open_wire(self._client, self._answer_seconds)
            if self._closed:
                wire.close()
                raise RedisConnectionError("the connection was closed")
            if self._given_up:
                # Moved or hung up meanwhile: it may lead to the wrong address.
                wire.close()
            else:
                self._wire = wire
        return self._wire


async def open_wire(client: Any, answer_seconds: float, on_message: Callable[[list[Any]], None] | None = None) -> Pipeline:
    """A connection as that client makes them."""
    connection = client.connection_pool.make_connection()
    # In a task of its own: it ends in time for the caller, also where a single cancel does not end it.
    connecting = asyncio.ensure_future(connection.connect())
    try:
        await asyncio.wait([connecting], timeout=answer_seconds)
        if not connecting.done():
            raise RedisTimeoutError(f"no answer within {answer_seconds:g} s")
        connecting.result()
        return Pipeline(connection, on_message)
    except BaseException:
        await cancel_and_wait([connecting], "no answer in time")
        with contextlib.suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)
        raise
