"""Watches the server from outside: every event of a task, and the entries that nobody has read."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from redis.exceptions import RedisError

from docket.storage.keys import GROUP, Keys, bytes_text

from .histories import History

PAUSE_SECONDS = 0.05
SAMPLE_SECONDS = 0.5
ANSWER_SECONDS = 5.0
LOOP_TICK_SECONDS = 0.1
LEAST_LAG_SECONDS = 0.3


async def watch_events(client: Any, keys: Keys, history: History) -> None:
    """Writes every state event, in the order of the server, until cancelled. A `gap` says that
    events before it may be missing."""
    beginning, pattern = keys.any_task_channel
    while True:
        try:
            async with client.pubsub() as subscription:
                await subscription.psubscribe(pattern)
                history.write("gap")
                async for message in subscription.listen():
                    if message["type"] == "pmessage":
                        _note_event(history, bytes_text(message["channel"][len(beginning) :]), message["data"])
        except (RedisError, OSError):
            await asyncio.sleep(PAUSE_SECONDS)


def _note_event(history: History, key: str, data: bytes) -> None:
    try:
        event: Any = json.loads(data.partition(b"\n")[0])
        if event["type"] == "state":
            history.write("state", key=key, state=event["state"], goes_on=event.get("goes_on", False))
    except (ValueError, TypeError, KeyError):
        history.write("foreign message", key=key)


async def watch_waiting(client: Any, keys: Keys, history: History) -> None:
    """Writes the oldest entry of each stream that
    nobody has read, twice a second, until cancelled."""
    while True:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                oldest = {stream: await _oldest_unread(client, stream) for stream in (keys.stream, keys.front)}
            history.write("waiting", **{name.rpartition(":")[2]: entry for name, entry in oldest.items()})
        except (RedisError, OSError, TimeoutError):
            pass
        await asyncio.sleep(SAMPLE_SECONDS)


async def _oldest_unread(client: Any, stream: str) -> str | None:
    if not await client.exists(stream):
        return None
    for group in await client.xinfo_groups(stream):
        if group["name"] == GROUP.encode():
            entries = await client.xrange(stream, b"(" + group["last-delivered-id"], "+", count=1)
            return entries[0][0].decode() if entries else None
    return None


async def watch_loop(history: History) -> None:
    """Writes a `stalled` event when this event loop
    is late: it carries the network of all others."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(LOOP_TICK_SECONDS)
        late = time.monotonic() - before - LOOP_TICK_SECONDS
        if late > LEAST_LAG_SECONDS:
            history.write("stalled", seconds=round(late, 3))
