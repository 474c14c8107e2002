"""Receives the events of all tasks of a docket, for displays and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from docket.errors import ServerUnsuitable

from .keys import Keys, bytes_text
from .pipeline import keep_listening
from .server import Server

logger: logging.Logger = logging.getLogger("docket.storage")

# After this many seconds without a message the connection has to answer a PING.
SILENCE_SECONDS = 10.0
PAUSE_SECONDS = 1.0

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
            await keep_listening(pipeline, SILENCE_SECONDS)
        except (TimeoutError, RedisError, OSError, ValueError, ServerUnsuitable) as error:
            # ValueError: another program publishes messages on docket's channels that are not
            # events.
            logger.debug("event tap: %s; connecting again", error)
            explained = server.explain(error)
            if isinstance(explained, ServerUnsuitable):
                on_refused(str(explained))
                ready.set()
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            if pipeline is not None:
                pipeline.close()
