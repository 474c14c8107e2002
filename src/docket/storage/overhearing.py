"""Hearing the events of all tasks of a docket, for those who watch over it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from .keys import Keys, bytes_text
from .server import ANSWER_SECONDS, Server

# After this much silence the connection has to prove that it lives.
SILENCE_SECONDS = 10.0
PAUSE_SECONDS = 1.0

Hear = Callable[[str, bytes], None]


async def overhear(server: Server, keys: Keys, hear: Hear, ready: asyncio.Event) -> None:
    """Calls `hear(task key, event)` for every event, until cancelled; `ready` is set once that is so.

    A lost connection is opened again. What was said meanwhile is not heard: this is for rates and for the curious, not
    for those who must know.
    """
    while True:
        client = connection = None
        try:
            client = await server.subscription_client()
            connection = client.connection_pool.make_connection()
            async with asyncio.timeout(ANSWER_SECONDS * 2):
                await connection.connect()
            await _listen(connection, keys, hear, ready)
        except (TimeoutError, RedisError, OSError, EOFError):
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            for closing in (connection and connection.disconnect, client and client.aclose):
                if closing:
                    with contextlib.suppress(RedisError, OSError, EOFError):
                        await closing()


async def _listen(connection: Any, keys: Keys, hear: Hear, ready: asyncio.Event) -> None:
    beginning, pattern = keys.any_task_channel
    await connection.send_command("PSUBSCRIBE", pattern)
    silent = False
    while True:
        message = await connection.read_response(timeout=SILENCE_SECONDS, disconnect_on_error=False)
        if message is None:
            if silent:
                raise EOFError("the connection does not answer")
            silent = True
            await connection.send_command("PING", check_health=False)
            continue
        silent = False
        if message[0] == b"pmessage":
            hear(bytes_text(message[2][len(beginning) :]), message[3])
        elif message[0] == b"psubscribe":
            ready.set()
