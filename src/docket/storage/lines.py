"""Connections for scripts: the same redis-py connections, without the pool's work for every command.

A command through redis-py's client costs about 190 µs of CPU, the same on a bare connection about 70. Scripts are all of
docket's traffic, so they go this way (docs/design/performance.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .scripts import Script

_LATE_SECONDS = 0.1


class Lines:
    """A few connections, each used by one call at a time; a call waits for one that is free."""

    def __init__(self, client: Any, most: int, answer_seconds: float) -> None:
        self._client = client
        self._free = asyncio.Semaphore(most)
        self._idle: list[Any] = []
        self._answer_seconds = answer_seconds

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str]) -> Any:
        async with self._free:
            line = await self._take()
            try:
                try:
                    return await self._ask(line, "EVALSHA", script.sha, keys, args)
                except NoScriptError:
                    return await self._ask(line, "EVAL", script.source, keys, args)
            except ReadOnlyError:
                # A master that became a replica: the next connection finds the new one.
                await _hang_up(line)
                raise
            except ResponseError:
                raise
            except BaseException:
                await _hang_up(line)
                raise
            finally:
                if line.is_connected:
                    self._idle.append(line)

    async def aclose(self) -> None:
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
        try:
            await line.connect()
        except BaseException:
            await _hang_up(line)
            raise
        return line

    async def _ask(
        self, line: Any, command: str, script: str, keys: Sequence[bytes], args: Sequence[bytes | str]
    ) -> Any:
        packed = line.pack_command(command, script, len(keys), *keys, *args)
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
