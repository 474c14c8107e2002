"""The task of `bench.failovers`: it notes when it starts."""

from __future__ import annotations

import asyncio
import os
import time

FOLDER = "DOCKET_BENCH_FOLDER"
BODY_SECONDS = 0.05


async def note(number: int) -> None:
    """One `write` to a file of this process: the time, which all processes of a machine share, and
    the number."""
    path = os.path.join(os.environ[FOLDER], f"{os.getpid()}.starts")
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{time.monotonic():.6f} {number}\n".encode())
    finally:
        os.close(file)
    await asyncio.sleep(BODY_SECONDS)


tasks = [note]
