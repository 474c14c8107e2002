"""One subscription connection per docket, shared by all listeners."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError, ResponseError

from docket._aio import Backoff, cancel_and_wait
from docket.errors import DocketError, NotOpen, ServerUnsuitable
from docket.model.texts import escaped

from .client.pipeline import Pipeline, keep_listening
from .keys import Keys, bytes_text
from .server import ANSWER_SECONDS, Server

logger: logging.Logger = logging.getLogger("docket.storage")


Listener = Callable[[bytes], None]

# After this many seconds without a message the connection has to answer a PING, within the same
# time.
SILENCE_SECONDS = 5.0
_LONGEST_PAUSE = 2.0


class Subscriptions:
    """Channels and their listeners. The connection opens on first use.

    A lost connection is opened again with all channels. Messages sent in between are lost, so every
    `on_gap` listener is called and reads the state itself.
    """

    def __init__(self, server: Server, name: str, key: bytes | None = None, keys: Keys | None = None) -> None:
        """With `key`, the connection is to the node that has the key. With `keys`, a connection
        that listens to a task of that docket also subscribes to its channel of listeners: scripts
        publish the states of a batch only while that channel has a subscriber."""
        self._server = server
        self._name = name
        self.ignored: IgnoredMessages = IgnoredMessages(name)
        self._key = key
        self._tasks = keys.any_task_channel[0] if keys is not None else None
        self._marker = keys.listeners_channel if keys is not None else b""
        # How many channels of tasks have listeners.
        self._task_channels = 0
        self._listeners: dict[bytes, list[Listener]] = {}
        self._gap_listeners: dict[int, Callable[[], None]] = {}
        self._pipeline: Pipeline | None = None
        self._reader: asyncio.Task[None] | None = None
        # Per channel: the number of unanswered SUBSCRIBE commands, and the future that callers wait
        # on for the answer.
        self._asked: dict[bytes, int] = {}
        self._confirmed: dict[bytes, asyncio.Future[None]] = {}
        self._missed: set[bytes] = set()
        self._closed = False
        self._trouble: Exception = ConnectionError("not connected")

    async def listen(self, channel: bytes, listener: Listener) -> None:
        """Returns when the server has confirmed the subscription: the listener gets every later
        message.

        Raises NotOpen once the docket is closed.
        """
        if self._closed:
            raise NotOpen("the docket was closed")
        listeners = self._listeners.setdefault(channel, [])
        if not listeners and self._is_of_task(channel):
            self._task_channels += 1
        listeners.append(listener)
        confirmation = self._confirmed.get(channel)
        if len(listeners) > 1 and confirmation is None:
            return
        try:
            if confirmation is None:
                confirmation = self._confirmed[channel] = asyncio.get_running_loop().create_future()
                self._start_reading()
                self._ask("SUBSCRIBE", *self._with_marker(channel))
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.shield(confirmation)
        except BaseException as error:
            self.unlisten(channel, listener)
            if isinstance(error, TimeoutError):
                raise self._server.explain(self._trouble) from self._trouble
            if isinstance(error, RedisError):
                raise self._server.explain(error) from error
            raise

    def unlisten(self, channel: bytes, listener: Listener) -> None:
        listeners = self._listeners.get(channel)
        if listeners is None or listener not in listeners:
            return
        listeners.remove(listener)
        if not listeners:
            del self._listeners[channel]
            self._confirmed.pop(channel, None)
            self._resubscribed(channel)
            self._ask("UNSUBSCRIBE", channel)
            if self._is_of_task(channel):
                self._task_channels -= 1
                if not self._task_channels:
                    self._ask("UNSUBSCRIBE", self._marker)

    def on_gap(self, owner: object, listener: Callable[[], None]) -> None:
        self._gap_listeners[id(owner)] = listener

    def forget_gap(self, owner: object) -> None:
        self._gap_listeners.pop(id(owner), None)

    async def aclose(self) -> None:
        reader, self._reader = self._reader, None
        self._closed = True
        for confirmation in self._confirmed.values():
            _fail(confirmation, NotOpen("the docket was closed"))
        try:
            if reader is not None:
                await cancel_and_wait([reader], "docket closes")
        finally:
            self._disconnect()

    def _start_reading(self) -> None:
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_forever(), name=f"{self._name} - subscriptions")

    def _ask(self, command: str, *channels: bytes) -> None:
        """Sends a command if there is a connection. Otherwise the reader subscribes to all channels
        once it has one."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.trouble is not None:
            return
        if command == "SUBSCRIBE":
            for channel in channels:
                self._asked[channel] = self._asked.get(channel, 0) + 1
        pipeline.send(command, *channels)

    async def _read_forever(self) -> None:
        backoff = Backoff(most=_LONGEST_PAUSE)
        while True:
            try:
                pipeline = await self._open()
                backoff.reset()
                await keep_listening(pipeline, SILENCE_SECONDS)
            except Exception as error:
                # After any error the reader opens a new connection.
                self._note_trouble(error)
            finally:
                self._disconnect()
            await self._server.outages.pause(backoff.next_pause())

    async def _open(self) -> Pipeline:
        pipeline = await self._server.subscription_pipeline(self._dispatch, self._key)
        # No await between these lines: a later caller finds the connection and subscribes itself.
        self._pipeline, self._asked = pipeline, {}
        channels = list(self._listeners)
        self._missed = {channel for channel in channels if channel not in self._confirmed}
        if channels:
            self._ask("SUBSCRIBE", *([self._marker] if self._task_channels else ()), *channels)
        return pipeline

    def _is_of_task(self, channel: bytes) -> bool:
        return self._tasks is not None and channel.startswith(self._tasks)

    def _with_marker(self, channel: bytes) -> tuple[bytes, ...]:
        """The channel, and before it the channel of listeners if this is the first channel of a
        task."""
        is_first = self._task_channels == 1 and self._is_of_task(channel)
        return (self._marker, channel) if is_first else (channel,)

    def _dispatch(self, message: list[Any]) -> None:
        if isinstance(message, Exception):
            raise message
        kind, channel = message[0], message[1]
        if kind == b"message":
            for listener in list(self._listeners.get(channel, ())):
                try:
                    listener(message[2])
                except Exception:
                    # Anybody may publish anything. One message must not end the connection of all
                    # listeners.
                    if self.ignored.note("something that its listener cannot read"):
                        logger.exception("docket %s: a listener failed on a message", escaped(self._name))
        elif kind == b"subscribe":
            # A channel that was unsubscribed and subscribed again has two answers. The last one
            # counts.
            self._asked[channel] = self._asked.get(channel, 1) - 1
            if self._asked[channel] <= 0:
                del self._asked[channel]
                self._subscribed(channel)

    def _subscribed(self, channel: bytes) -> None:
        confirmation = self._confirmed.pop(channel, None)
        if confirmation is not None and not confirmation.done():
            confirmation.set_result(None)
        self._resubscribed(channel)

    def _resubscribed(self, channel: bytes) -> None:
        """Calls the gap listeners once all channels of the lost connection are subscribed again."""
        if channel in self._missed:
            self._missed.discard(channel)
            if not self._missed:
                for listener in list(self._gap_listeners.values()):
                    listener()

    def _note_trouble(self, error: Exception) -> None:
        self._trouble = error
        logger.debug("subscriptions: %s; connecting again", error)
        if isinstance(error, (ResponseError, ServerUnsuitable)):
            # The server refuses the subscription: another attempt would not help the waiting
            # callers.
            for confirmation in self._confirmed.values():
                _fail(confirmation, error)

    def _disconnect(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()


async def may_have_listeners(server: Server, channel: bytes) -> bool:
    """Whether a channel may have listeners. Also true if the server cannot answer or forbids the
    command."""
    if server.is_cluster:
        # A node knows only its own listeners.
        return True
    try:
        return bool((await server.ask(channel, "PUBSUB", "NUMSUB", channel))[1])
    except (DocketError, RedisError):
        return True


def _fail(confirmation: asyncio.Future[None], error: Exception) -> None:
    if not confirmation.done() and not confirmation.get_loop().is_closed():
        confirmation.set_exception(error)
        # The waiting callers get the error. Without a caller it needs no report.
        confirmation.exception()


# After this many seconds without a message the connection has to answer a PING.
TAP_SILENCE_SECONDS = 10.0
TAP_PAUSE_SECONDS = 1.0

OnEvent = Callable[[str, bytes], None]
OnRefused = Callable[[str | None], None]


async def tap_events(
    server: Server, keys: Keys, on_event: OnEvent, ready: asyncio.Event, on_refused: OnRefused
) -> None:
    """Calls `on_event(task key, event)` for every event until cancelled. Sets `ready` once the
    subscription is confirmed or refused. `on_refused` gets the refusal of the server, and None once
    it permits the subscription.

    A lost connection is opened again. Events sent in between are lost: this is for rates and
    displays, not for code that needs every event.
    """
    beginning, pattern = keys.any_task_channel

    def on_message(message: list[Any]) -> None:
        if isinstance(message, Exception):
            raise message
        if message[0] == b"pmessage":
            on_event(bytes_text(message[2][len(beginning) :]), message[3].partition(b"\n")[0])
        elif message[0] == b"psubscribe":
            on_refused(None)
            ready.set()

    while True:
        pipeline = None
        try:
            pipeline = await server.subscription_pipeline(on_message)
            pipeline.send("PSUBSCRIBE", pattern)
            await keep_listening(pipeline, TAP_SILENCE_SECONDS)
        except (TimeoutError, RedisError, OSError, ValueError, ServerUnsuitable) as error:
            # ValueError: another program publishes messages on docket's channels that are not
            # events.
            logger.debug("event tap: %s; connecting again", error)
            explained = server.explain(error)
            if isinstance(explained, ServerUnsuitable):
                on_refused(str(explained))
                ready.set()
            await asyncio.sleep(TAP_PAUSE_SECONDS)
        finally:
            if pipeline is not None:
                pipeline.close()


LOG_SECONDS = 60.0
INQUIRY_SECONDS = 1.0


class IgnoredMessages:
    """Counts the messages that a process ignores, and logs them once a minute at most."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since_log = 0
        self._logged_at: float | None = None

    def note(self, kind: str) -> bool:
        """`kind` says what the message was taken for: a
        delivery, an ending, … Returns whether it was logged."""
        self._since_log += 1
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < LOG_SECONDS:
            return False
        logger.warning(
            "docket %s: %d messages that no script has sent were ignored, the last one about %s; somebody else publishes "
            "on docket's channels, or runs another release (docs/security.md)",
            escaped(self._name),
            self._since_log,
            kind,
        )
        self._logged_at, self._since_log = now, 0
        return True


class Inquiry:
    """Asks the server instead of believing a message: at once, but once a second at most. The last
    request is never dropped."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> None:
        if self._timer is not None:
            return
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= INQUIRY_SECONDS:
            self._asked_at = now
            self._ask()
        else:
            wait = self._asked_at + INQUIRY_SECONDS - now
            self._timer = asyncio.get_running_loop().call_later(wait, self._later)

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _later(self) -> None:
        self._timer = None
        self._asked_at = time.monotonic()
        self._ask()
