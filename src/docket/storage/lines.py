"""Connections for scripts: the same redis-py connections, without the pool's work for every command.

A command through redis-py's client costs about 190 µs of CPU, the same on a bare connection about 70, and less when hiredis
packs its thirty words. Scripts are all of docket's traffic, so they go this way (docs/design/performance.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .scripts import Script

_LATE_SECONDS = 0.1
Words = tuple[bytes | str | int, ...]
# Its stub knows commands of one word only.
_pack = cast(Callable[[Words], bytes], cast(Any, hiredis).pack_command)


class Lines:
    """A few connections, each used by one call at a time; a call waits for one that is free."""

    def __init__(self, client: Any, most: int, answer_seconds: float) -> None:
        self._client = client
        self._free = asyncio.Semaphore(most)
        self._idle: list[Any] = []
        self._moves = 0
        self._answer_seconds = answer_seconds

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str]) -> Any:
        """Runs a script, which is loaded first where the server does not know it."""
        try:
            return await self.ask("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self.ask("EVAL", script.source, len(keys), *keys, *args)

    async def ask(self, *words: bytes | str | int) -> Any:
        """One command, answered as the server answers it."""
        async with self._free:
            line, moves = await self._take(), self._moves
            try:
                return await self._ask(line, words)
            except ReadOnlyError:
                # A master that became a replica: a new connection may find the new one behind the same name.
                await _hang_up(line)
                raise
            except ResponseError:
                raise
            except BaseException:
                await _hang_up(line)
                raise
            finally:
                if not line.is_connected or moves != self._moves:
                    await _hang_up(line)
                else:
                    self._idle.append(line)

    async def move(self, host: str, port: int) -> None:
        """From now on connections are made to that node; those to another one end with their calls."""
        options = self._client.connection_pool.connection_kwargs
        if (options.get("host"), options.get("port")) == (host, port):
            return
        self._moves += 1
        options.update(host=host, port=port)
        await self.hang_up_idle()

    async def aclose(self) -> None:
        # A call that is still under way does not leave its connection behind either.
        self._moves += 1
        await self.hang_up_idle()
        await self._client.aclose()

    async def hang_up_idle(self) -> None:
        idle, self._idle = self._idle, []
        for line in idle:
            await _hang_up(line)

    async def _take(self) -> Any:
        while self._idle:
            line = self._idle.pop()
            if not _is_stale(line):
                return line
            await _hang_up(line)
        line = self._client.connection_pool.make_connection()
        # Twice: connecting has a deadline of its own, and then the server has to answer our greeting.
        patience = self._answer_seconds * 2
        try:
            async with asyncio.timeout(patience):
                await line.connect()
        except TimeoutError:
            await _hang_up(line)
            raise RedisTimeoutError(f"no answer within {patience:g} s") from None
        except BaseException:
            await _hang_up(line)
            raise
        return line

    async def _ask(self, line: Any, words: Words) -> Any:
        packed = _pack(words)
        try:
            async with asyncio.timeout(self._answer_seconds):
                await line.send_packed_command(packed, check_health=False)
                return await line.read_response(disconnect_on_error=False)
        except TimeoutError:
            return await self._read_late(line)

    async def _read_late(self, line: Any) -> Any:
        """After code that blocked the event loop both the answer and the end of our patience are there: the answer counts."""
        try:
            async with asyncio.timeout(_LATE_SECONDS):
                return await line.read_response(disconnect_on_error=False)
        except TimeoutError:
            # Where one connection went silent, those that lie idle may have, too; each would cost the same wait.
            await self.hang_up_idle()
            raise RedisTimeoutError(f"no answer within {self._answer_seconds:g} s") from None


def _is_stale(line: Any) -> bool:
    """Whether the server has closed an idle connection: then its end has been read already."""
    reader = getattr(line, "_reader", None)
    return not line.is_connected or (reader is not None and reader.at_eof())


async def _hang_up(line: Any) -> None:
    with contextlib.suppress(RedisError, OSError):
        await line.disconnect(nowait=True)
