"""Hearing the events of all tasks of a docket, for those who watch over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from .keys import Keys, bytes_text
from .pipeline import stay
from .server import Server

logger: logging.Logger = logging.getLogger("docket.storage")

# After this much silence the connection has to prove that it lives.
SILENCE_SECONDS = 10.0
PAUSE_SECONDS = 1.0

Hear = Callable[[str, bytes], None]


async def tap_events(server: Server, keys: Keys, hear: Hear, ready: asyncio.Event) -> None:
    """Calls `hear(task key, event)` for every event,
    until cancelled; `ready` is set once that is so.

    A lost connection is opened again. What was said meanwhile is not heard: this is for rates and
    for the curious, not for those who must know.
    """
    beginning, pattern = keys.any_task_channel

    def on_message(message: list[Any]) -> None:
        if isinstance(message, Exception):
            raise message
        if message[0] == b"pmessage":
            hear(bytes_text(message[2][len(beginning) :]), message[3].partition(b"\n")[0])
        elif message[0] == b"psubscribe":
            ready.set()

    while True:
        pipeline = None
        try:
            pipeline = await server.subscription_pipeline(on_message)
            pipeline.tell("PSUBSCRIBE", pattern)
            await stay(pipeline, SILENCE_SECONDS)
        except (TimeoutError, RedisError, OSError, ValueError) as error:
            # ValueError: somebody else says things on our channels that are no events.
            logger.debug("overhearing: %s; connecting again", error)
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            if pipeline is not None:
                pipeline.close()
