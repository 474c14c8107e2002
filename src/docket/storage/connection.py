"""The line to one node: a connection that is opened
when it is needed, and again when it was lost."""

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
from .pipeline import Pipeline
from .scripts import Script


class Connection:
    """All calls to a node go over one connection, in the order in which they are made."""

    def __init__(self, client: Any, answer_seconds: float) -> None:
        self._client = client
        self._answer_seconds = answer_seconds
        self._pipeline: Pipeline | None = None
        self._connecting = SharedAttempt(self._connect, answer_seconds, "docket - connecting")
        self._given_up = self._closed = False

    @property
    def pipeline(self) -> Pipeline | None:
        """The connection that is open now."""
        return self._pipeline

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
        pipeline = self._pipeline
        if pipeline is None or pipeline.trouble is not None:
            pipeline = await self.connect()
        try:
            return await pipeline.ask(words, patience or self._answer_seconds)
        except ReadOnlyError:
            # A master that became a replica: a new connection
            # may find the new one behind the same name.
            self._retire(pipeline)
            raise

    async def connect(self) -> Pipeline:
        """The connection, which is opened if there is none. All callers share one attempt."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.trouble is not None:
            pipeline = await self._connecting.join()
        return pipeline

    async def ask_alone(self, *words: bytes | str | int, patience: float = 1.0) -> Any:
        """One command with a large value, or for one, with so many times the
        usual patience. If the caller gives it up, so does the connection:
        the rest of it is not sent, and nobody waits behind it."""
        try:
            return await self.ask(*words, patience=self._answer_seconds * patience)
        except asyncio.CancelledError:
            pipeline, self._pipeline = self._pipeline, None
            if pipeline is not None:
                pipeline.close()
            raise

    async def move(self, host: str, port: int) -> None:
        """From now on calls go to that node; those under way end where they began."""
        options = self._client.connection_pool.connection_kwargs
        if (options.get("host"), options.get("port")) == (host, port):
            return
        options.update(host=host, port=port)
        self.disconnect()

    async def aclose(self) -> None:
        self._closed = True
        self._connecting.stop()
        if self._pipeline is not None:
            self._pipeline.close()
        await self._client.aclose()

    def disconnect(self) -> None:
        """The next call opens a new connection."""
        self._given_up = True
        if self._pipeline is not None:
            self._retire(self._pipeline)

    def _retire(self, pipeline: Pipeline) -> None:
        pipeline.close_when_idle()
        if self._pipeline is pipeline:
            self._pipeline = None

    async def _connect(self) -> Pipeline:
        while self._pipeline is None or self._pipeline.trouble is not None:
            self._given_up = False
            pipeline = await open_pipeline(self._client, self._answer_seconds)
            if self._closed:
                pipeline.close()
                raise RedisConnectionError("the connection was closed")
            if self._given_up:
                # Moved or hung up meanwhile: it may lead to the wrong address.
                pipeline.close()
            else:
                self._pipeline = pipeline
        return self._pipeline


async def open_pipeline(
    client: Any, answer_seconds: float, on_message: Callable[[list[Any]], None] | None = None
) -> Pipeline:
    """A connection as that client makes them."""
    connection = client.connection_pool.make_connection()
    # In a task of its own: it ends in time for the
    # caller, also where a single cancel does not end it.
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
