"""Tasks that note what ran, and words for what the tests do with pauses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from docket import Docket
from tests.running import running, worker_for
from tests.waiting import eventually


class Recorder:
    """Two tasks, and a record of the calls that ran."""

    def __init__(self) -> None:
        self.served: list[Any] = []
        # `stay` runs until the test lets it end.
        self.may_end = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def serve(self, number: Any, region: str = "north") -> None:
        self.served.append(number)

    async def other(self, number: Any = None) -> None:
        self.served.append("other" if number is None else ("other", number))

    async def stay(self) -> None:
        self.has_begun.set()
        await self.may_end.wait()
        self.served.append("stayed")


def registered(docket: Docket) -> Recorder:
    recorder = Recorder()
    for function in (recorder.serve, recorder.other, recorder.stay):
        docket.register(function)
    return recorder


@asynccontextmanager
async def working(docket: Docket, **options: Any) -> AsyncGenerator[None]:
    """A worker runs beside the test."""
    async with worker_for(docket, **options) as worker, running(worker):
        yield


async def add_all(docket: Docket, function: Any, numbers: Iterable[Any]) -> None:
    """Adds one after the other, so that their order is certain."""
    for number in numbers:
        await docket.add(function, key=str(number))(number)


async def held(docket: Docket, count: int) -> None:
    """Returns when the pauses hold so many tasks."""

    async def are_held() -> bool:
        return sum(pause.held for pause in await docket.pauses()) == count

    async def seen() -> object:
        return [str(pause) for pause in await docket.pauses()]

    await eventually(are_held, f"{count} tasks are held", seen=seen)


async def unpaused(docket: Docket) -> None:
    """Returns when every pause is gone: its last task has gone on."""

    async def is_gone() -> bool:
        return await docket.pauses() == []

    await eventually(is_gone, "no pause is left")
