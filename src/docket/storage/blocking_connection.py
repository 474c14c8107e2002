"""A connection for commands that block on the server. Another task can interrupt them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisError, ResponseError

from docket.errors import DocketError

from .connection import Connection
from .pipeline import Pipeline

# The command may not have reached the server yet when it is interrupted, so the interruption is
# repeated for a while.
_PAUSE_SECONDS = 0.01
_TRIES = 25


class BlockingConnection:
    """One blocking command at a time. `interrupt` ends it as if its time were over.

    The server ends the wait (`CLIENT UNBLOCK`). If the server refuses, the connection is closed.
    The answer that was under way at that moment is lost; then `was_cut` is true. The same holds if
    the connection moves to another node.
    """

    def __init__(
        self,
        connection: Connection,
        ask_elsewhere: Callable[..., Awaitable[Any]],
        on_moved: Callable[[MovedError], None],
    ) -> None:
        """`on_moved` gets the answer of a node that no longer has the key."""
        self._connection = connection
        self._ask_elsewhere = ask_elsewhere
        self._on_moved = on_moved
        self._identified: Pipeline | None = None
        self._id: int | None = None
        self._commands = 0
        self._asked = self._waiting = self._is_interrupted = False
        self._interrupting: asyncio.Task[None] | None = None
        self.was_cut: bool = False

    async def ask(self, *words: bytes | str | int, patience: float) -> Any:
        """The answer, or None if the command was interrupted."""
        self._asked, self._is_interrupted, self.was_cut = True, False, False
        moves = self._connection.moves
        try:
            await self._identify()
            if self._is_interrupted:
                return None
            self._commands += 1
            self._waiting = True
            return await self._connection.ask(*words, patience=patience)
        except MovedError as error:
            self._on_moved(error)
            if self._connection.moves == moves:
                raise
            return None
        except RedisConnectionError:
            self.was_cut = self.was_cut or self._connection.moves != moves
            if not self.was_cut:
                raise
            return None
        finally:
            self._asked = self._waiting = False

    @property
    def waiting_id(self) -> int | None:
        """The server's id of this connection while a command waits on it. Safe to read from any
        thread."""
        return self._id if self._waiting else None

    def interrupt(self) -> None:
        """Ends the unanswered command, if there is one."""
        if self._asked and not self._waiting:
            self._is_interrupted = True
        elif self._waiting and self._interrupting is None:
            self._interrupting = asyncio.create_task(
                self._interrupt(self._commands), name=f"{self._connection.name} - interrupting"
            )
            self._interrupting.add_done_callback(self._interrupted)

    async def aclose(self) -> None:
        if self._interrupting is not None:
            self._interrupting.cancel()
        await self._connection.aclose()

    async def _identify(self) -> None:
        """Asks for the id, once per connection."""
        pipeline = self._connection.pipeline
        if pipeline is not None and pipeline is self._identified and pipeline.trouble is None:
            return
        try:
            self._id = await self._connection.ask("CLIENT", "ID")
        except ResponseError:
            # This server forbids the command.
            self._id = None
        self._identified = self._connection.pipeline

    async def _interrupt(self, command: int) -> None:
        for _ in range(_TRIES if self._id is not None else 0):
            try:
                if await self._ask_elsewhere("CLIENT", "UNBLOCK", self._id):
                    return
            except (DocketError, RedisError):
                break
            await asyncio.sleep(_PAUSE_SECONDS)
            if not self._is_waiting_for(command):
                return
        if self._is_waiting_for(command) and self._connection.pipeline is not None:
            self.was_cut = True
            self._connection.pipeline.close()

    def _is_waiting_for(self, command: int) -> bool:
        return self._waiting and self._commands == command

    def _interrupted(self, task: asyncio.Task[None]) -> None:
        self._interrupting = None
        if not task.cancelled():
            task.exception()
