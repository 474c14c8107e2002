"""Watches the server from outside: every event of a task, and the entries that nobody has read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from docket.storage.keys import Keys, bytes_text
from docket.storage.schema.keys import GROUP

from .histories import History
from .producer_process import BACKLOG_MARK

# Makes a client of the server that has the data now.
Connect = Callable[[], Any]

PAUSE_SECONDS = 0.05
SAMPLE_SECONDS = 0.5
ANSWER_SECONDS = 5.0
LOOP_TICK_SECONDS = 0.1
LEAST_LAG_SECONDS = 0.3
MOST_BACKLOG = 400


async def watch_events(connect: Connect, keys: Keys, history: History) -> None:
    """Writes every state event, in the order of the server, until cancelled. A `gap` says that
    events before it may be missing."""
    beginning, pattern = keys.any_task_channel
    while True:
        try:
            async with connect() as client, client.pubsub() as subscription:
                await subscription.psubscribe(pattern)
                async for message in subscription.listen():
                    if message["type"] == "psubscribe":
                        # At the beginning, and whenever the client has connected again by itself.
                        history.write("gap")
                    # The record of an ending, with its proof, follows the event.
                    if message["type"] == "pmessage" and not message["data"].startswith(b"E"):
                        _note_event(history, bytes_text(message["channel"][len(beginning) :]), message["data"])
        except (RedisError, OSError, LookupError):
            await asyncio.sleep(PAUSE_SECONDS)


def _note_event(history: History, key: str, data: bytes) -> None:
    try:
        event: Any = json.loads(data.partition(b"\n")[0])
        if event["type"] == "state":
            history.write("state", key=key, state=event["state"], goes_on=event.get("goes_on", False))
    except (ValueError, TypeError, KeyError):
        history.write("foreign message", key=key)


async def watch_waiting(connect: Connect, keys: Keys, history: History, folder: Path) -> None:
    """Writes the oldest entry of each stream that
    nobody has read, twice a second, until cancelled."""
    while True:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), connect() as client:
                oldest = {stream: await _oldest_unread(client, stream) for stream in (keys.stream, keys.front)}
                await _hold_up_producers(client, keys, folder)
            history.write("waiting", **{name.rpartition(":")[2]: entry for name, entry in oldest.items()})
        except (RedisError, OSError, TimeoutError, LookupError):
            pass
        await asyncio.sleep(SAMPLE_SECONDS)


async def _hold_up_producers(client: Any, keys: Keys, folder: Path) -> None:
    """A machine that cannot keep up with the load must not show its backlog instead of faults: the
    producers wait while there is a mark in the folder."""
    mark, backlog = folder / BACKLOG_MARK, await client.xlen(keys.stream)
    if backlog > MOST_BACKLOG:
        mark.touch()
    elif backlog < MOST_BACKLOG / 4:
        mark.unlink(missing_ok=True)


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
