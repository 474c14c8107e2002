"""The Python half of an adapter for a system in another language: a producer that sends each order
as a line of JSON to a program, which answers with a line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bench.adapters.serving import Producer

# A line with the numbers of a thousand tasks.
LONGEST_LINE = 1 << 20


class LineProducer(Producer):
    def __init__(self, *command: str) -> None:
        self._command = command

    async def open(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, limit=LONGEST_LINE
        )
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def ask(self, numbers: Sequence[int], **more: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        async with self._turn:
            stdin.write(json.dumps({"numbers": list(numbers), **more}).encode() + b"\n")
            await stdin.drain()
            line = await stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command[0]} ended")
        return json.loads(line)

    async def enqueue(self, number: int) -> None:
        await self.ask([number])

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        await self.ask(numbers)

    async def enqueue_sleepers(self, numbers: Sequence[int], seconds: float) -> None:
        await self.ask(numbers, seconds=seconds)

    async def enqueue_at(self, number: int, when: datetime) -> None:
        await self.ask([number], delay=max(round((when.timestamp() - time.time()) * 1000), 1))
