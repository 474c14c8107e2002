"""A connection to one node. It opens when it is needed, and again after it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from docket._aio import cancel_and_wait
from docket.errors import DocketError
from docket.storage.repairs import careful_form, is_damage, unwrap
from docket.storage.scripts import Script, mark_script

from .attempts import SharedAttempt
from .pipeline import Pipeline, Words

# How long the calls under way may wait for the old node after a move.
LEAVE_SECONDS = 0.5


class Connection:
    """All calls to a node go over one connection, in the order of the calls."""

    def __init__(
        self, client: Any, answer_seconds: float, leave_seconds: float = LEAVE_SECONDS, name: str = "docket"
    ) -> None:
        self._client = client
        self.name: str = name
        self._answer_seconds = answer_seconds
        self._leave_seconds = leave_seconds
        # How often the connection has moved to another node.
        self.moves: int = 0
        self._pipeline: Pipeline | None = None
        self._connecting = SharedAttempt(self._connect, answer_seconds, f"{name} - connecting")
        self._opening: asyncio.Task[Pipeline] | None = None
        self._is_outdated = self._closed = False

    @property
    def pipeline(self) -> Pipeline | None:
        """The open connection, or None."""
        return self._pipeline

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port of the node; for servers behind sentinels and in clusters."""
        options = self._client.connection_pool.connection_kwargs
        return options["host"], options["port"]

    @property
    def heard_at(self) -> float:
        """The loop's time at which the node last sent something on the open connection; 0 without
        one."""
        return self._pipeline.received_at if self._pipeline is not None else 0.0

    async def run(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str], patience: float | None = None
    ) -> Any:
        """Runs a script. If the server does not know the script, sends its source."""
        try:
            try:
                return await self.ask("EVALSHA", script.sha, len(keys), *keys, *args, patience=patience)
            except NoScriptError:
                return await self.ask("EVAL", script.source, len(keys), *keys, *args, patience=patience)
        except ResponseError as error:
            mark_script(error, script)
            if not is_damage(error):
                raise
            try:
                reply = await self.ask("EVAL", careful_form(script).source, len(keys), *keys, *args)
            except ResponseError:
                # This user may not repair anything, or the damage is of another kind.
                raise error from None
            return unwrap(reply, keys[0])

    async def run_and_wait(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str], wait_ms: int, replicas: int = 1
    ) -> tuple[Any, int | Exception]:
        """Runs a script, and waits until so many replicas have what it wrote. Returns the answer of
        the script, and how many replicas have confirmed within `wait_ms`, or the error instead of
        that number.

        WAIT goes out right behind the script on the same connection, so it is about this script.
        The first time on a connection, the source goes with it: a server that did not know the
        script would wait for the replica before it hears the source.
        """
        pipeline = await self.connect()
        wait = ("WAIT", replicas, wait_ms)
        words = ("EVALSHA", script.sha) if script.sha in pipeline.scripts else ("EVAL", script.source)
        pipeline.scripts.add(script.sha)
        try:
            return await self._ask_and_wait(pipeline, (*words, len(keys), *keys, *args), wait)
        except NoScriptError:
            return await self._ask_and_wait(pipeline, ("EVAL", script.source, len(keys), *keys, *args), wait)
        except ResponseError as error:
            mark_script(error, script)
            if not is_damage(error):
                raise
            source = careful_form(script).source
            reply, confirmed = await self._ask_and_wait(pipeline, ("EVAL", source, len(keys), *keys, *args), wait)
            return unwrap(reply, keys[0]), confirmed

    async def _ask_and_wait(
        self, pipeline: Pipeline, words: Words, wait: tuple[str, int, int]
    ) -> tuple[Any, int | Exception]:
        patience = self._answer_seconds + wait[2] / 1000
        reply = pipeline.ask(words, patience)
        waited = pipeline.ask(wait, patience)
        # If the script fails, its error is enough.
        waited.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            answer = await reply
        except ReadOnlyError:
            self._retire(pipeline)
            raise
        try:
            return answer, await waited
        except (RedisError, OSError) as error:
            return answer, error

    async def ask(self, *words: bytes | str | int, patience: float | None = None) -> Any:
        """Sends one command and returns the server's answer."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.trouble is not None:
            pipeline = await self.connect()
        try:
            return await pipeline.ask(words, patience or self._answer_seconds)
        except ReadOnlyError:
            # The master became a replica: a new connection may find the new master behind the same
            # name.
            self._retire(pipeline)
            raise

    async def connect(self) -> Pipeline:
        """The open connection; opens one if there is none. All callers share one attempt."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.trouble is not None:
            pipeline = await self._connecting.join()
        return pipeline

    async def ask_alone(self, *words: bytes | str | int, patience: float = 1.0) -> Any:
        """Sends one command with a large argument or answer, with `patience` times the usual time
        limit. If the caller is cancelled, the connection is closed: the rest of the command is not
        sent, and no other call waits behind it."""
        try:
            return await self.ask(*words, patience=self._answer_seconds * patience)
        except asyncio.CancelledError:
            pipeline, self._pipeline = self._pipeline, None
            if pipeline is not None:
                pipeline.close()
            raise

    def move(self, host: str, port: int) -> None:
        """Further calls go to that node. Calls under way end on the old one, which may be dead:
        soon they count as lost."""
        options = self._client.connection_pool.connection_kwargs
        if (options.get("host"), options.get("port")) == (host, port):
            return
        options.update(host=host, port=port)
        self.moves += 1
        self._is_outdated = True
        if self._opening is not None:
            self._opening.cancel()
        if self._pipeline is not None:
            self._retire(self._pipeline, self._leave_seconds)

    async def is_silent(self, seconds: float) -> bool:
        """Whether the node has sent nothing for this long, and does not answer a PING in that time
        either."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.trouble is not None:
            return self._connecting.age > seconds
        if asyncio.get_running_loop().time() - pipeline.received_at < seconds:
            return False
        try:
            async with asyncio.timeout(seconds):
                await pipeline.ask(("PING",), self._answer_seconds)
        except TimeoutError:
            return True
        except (RedisError, OSError):
            # An answer, or the end of the connection: both are news.
            return False
        return False

    async def aclose(self) -> None:
        self._closed = True
        self._connecting.stop()
        if self._pipeline is not None:
            self._pipeline.close()
        await self._client.aclose()

    def disconnect(self) -> None:
        """The next call opens a new connection."""
        self._is_outdated = True
        if self._pipeline is not None:
            self._retire(self._pipeline)

    def _retire(self, pipeline: Pipeline, within: float | None = None) -> None:
        pipeline.close_when_idle(within)
        if self._pipeline is pipeline:
            self._pipeline = None

    async def _connect(self) -> Pipeline:
        while self._pipeline is None or self._pipeline.trouble is not None:
            self._is_outdated = False
            self._opening = start_opening(self._client, self._answer_seconds, self.name)
            pipeline = await opened(self._opening)
            if pipeline is None:
                # The node may be silent: a move ends the
                # attempt, and the next one is at the new node.
                continue
            if self._closed:
                pipeline.close()
                raise RedisConnectionError("the connection was closed")
            if self._is_outdated:
                # The connection was moved or disconnected meanwhile: this one may lead to the wrong
                # address.
                pipeline.close()
            else:
                self._pipeline = pipeline
        return self._pipeline


def start_opening(
    client: Any, answer_seconds: float, name: str, on_message: Callable[[list[Any]], None] | None = None
) -> asyncio.Task[Pipeline]:
    """An attempt to open a connection that others may cancel; see `opened`."""
    return asyncio.create_task(open_pipeline(client, answer_seconds, on_message), name=f"{name} - opening")


async def opened(opening: asyncio.Task[Pipeline]) -> Pipeline | None:
    """The connection that was opened; None if the attempt was cancelled."""
    try:
        await asyncio.wait([opening])
    except BaseException:
        await cancel_and_wait([opening], "docket: nobody waits for the connection")
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()
        raise
    return None if opening.cancelled() else opening.result()


async def open_pipeline(
    client: Any, answer_seconds: float, on_message: Callable[[list[Any]], None] | None = None
) -> Pipeline:
    """Opens a connection with the settings of that client."""
    connection = client.connection_pool.make_connection()
    # In a task of its own: the wait ends in time for the caller, even if a single cancel does not
    # end the attempt.
    connecting: asyncio.Task[None] = asyncio.ensure_future(connection.connect())
    # It may fail by itself just when it is given up; nobody asks it then.
    connecting.add_done_callback(lambda done: done.cancelled() or done.exception())
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
