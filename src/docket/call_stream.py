"""Schedules any number of calls in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import TYPE_CHECKING

from docket.chunks import chunks_of
from docket.execution import Execution, TaskCall

if TYPE_CHECKING:
    from docket.docket import Docket


async def stream_calls(
    docket: Docket, calls: Iterable[TaskCall] | AsyncIterable[TaskCall], chunk_size: int
) -> AsyncGenerator[Execution]:
    """Reads a chunk of calls while the server stores the one before. At most two chunks are in
    memory."""
    sending: asyncio.Task[list[Execution]] | None = None
    chunks, error = chunks_of(calls, chunk_size), None
    try:
        while True:
            try:
                chunk = await anext(chunks, None)
            except Exception as raised:
                chunk, error = None, raised
            scheduled = await sending if sending is not None else []
            sending = None
            if chunk is not None:
                sending = asyncio.create_task(docket.add_many(chunk, None), name=f"{docket.name} - sending a chunk")
                # Its first requests leave before the caller handles the executions.
                await asyncio.sleep(0)
            for execution in scheduled:
                yield execution
            if chunk is None:
                break
    finally:
        if sending is not None:
            # The caller has left early. Docket finishes the chunk that it has begun to send.
            await sending
    if error is not None:
        raise error
