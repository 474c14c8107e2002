"""A worker process: `python -m tests.faults.program '<settings as JSON>'`."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import timedelta

from chaos.wrong_clock import shift_clock

settings = json.loads(sys.argv[1])
if settings.get("clock_seconds"):
    # Before docket is imported: it must not see the right clock even once.
    shift_clock(settings["clock_seconds"])

from docket import Worker  # noqa: E402


async def main() -> None:
    await asyncio.gather(*(work(number) for number in range(settings.get("workers", 1))))


async def work(number: int) -> None:
    await Worker.run(
        docket_name=settings["docket"],
        url=settings["url"],
        name=f"{settings['name']}-{number}" if number else settings["name"],
        concurrency=settings["concurrency"],
        redelivery_timeout=timedelta(seconds=settings["lease"]),
        grace_period=timedelta(seconds=settings["grace"]),
        tasks=settings["tasks"],
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(main())
