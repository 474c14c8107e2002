"""Cancels of the asyncio task that runs a worker: they are the way to stop it."""

from __future__ import annotations

import asyncio


def notice_cancel() -> None:
    """A cancel that the client library swallowed during
    set-up (see docket._aio) counts all the same."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError


def forget_cancels() -> None:
    """Having stopped, a worker that was cancelled returns as if asked politely."""
    current = asyncio.current_task()
    while current is not None and current.cancelling():
        current.uncancel()
