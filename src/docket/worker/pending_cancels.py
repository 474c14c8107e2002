"""Pending cancels of the asyncio task that runs a worker. Such a cancel stops the worker."""

from __future__ import annotations

import asyncio


def raise_pending_cancel() -> None:
    """Raises a cancel that the client library swallowed during set-up (see docket._aio)."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError


def clear_pending_cancels() -> None:
    """Clears all pending cancels: a cancelled worker returns normally after it has stopped."""
    current = asyncio.current_task()
    while current is not None and current.cancelling():
        current.uncancel()
