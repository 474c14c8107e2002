"""Listens to the events of all tasks of a docket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from docket._aio import cancel_and_wait
from docket.storage.event_tap import OnEvent, tap_events

if TYPE_CHECKING:
    from docket.docket import Docket

# How long to wait for the subscription. Without it there are no events, but all else works.
LISTEN_SECONDS = 5.0


@asynccontextmanager
async def tapped_events(
    docket: Docket, on_event: OnEvent, on_refused: Callable[[str | None], None]
) -> AsyncGenerator[None]:
    """Calls `on_event` with the key and the message of every event within the context. Anybody may
    have published an event, so it is only shown. `on_refused` gets the reason if the server does
    not permit to listen."""
    ready = asyncio.Event()
    listener = asyncio.create_task(
        tap_events(docket.server, docket.keys, on_event, ready, on_refused), name=f"{docket.name} - event tap"
    )
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ready.wait(), LISTEN_SECONDS)
        yield
    finally:
        await cancel_and_wait([listener], "docket: nobody listens any longer")
