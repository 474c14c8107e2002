"""Asyncio tasks of our own end for certain."""

from __future__ import annotations

import asyncio

from docket._aio import cancel_and_wait


async def test_tasks_are_cancelled_also_when_it_is_too_late_to_wait_for_them() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    await cancel_and_wait([task], "too late", lambda: True)
    assert task.cancelling()
    await asyncio.wait([task])
    assert task.cancelled()
