"""Schedules automatic tasks, and puts them back if they ever fall off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from docket.dependencies import Perpetual, plan_for
from docket.execution import TaskCall, TaskFunction
from docket.storage.faults import PASSING
from docket.storage.keys import text_bytes

from .service import Service

if TYPE_CHECKING:
    from docket.docket import Docket

logger = logging.getLogger("docket.worker")

HEAL_SECONDS = 30.0


class Seeder(Service):
    """Adds every automatic task under its own name: where it is there already, that changes nothing."""

    name = "seeding"

    def __init__(self, docket: Docket, labels: dict[str, str], most_pause: float) -> None:
        super().__init__(labels, most_pause)
        self._docket = docket
        self._buried_told: set[str] = set()
        self._hurry = asyncio.Event()

    async def begin(self) -> None:
        """Seeds before the worker starts; if the server cannot take it now, a later step will."""
        try:
            await self.seed()
        except PASSING as error:
            logger.warning("seeding: %s; trying again", error)

    def hurry(self) -> None:
        """The server came back empty: what is missing is put back now."""
        self._hurry.set()

    async def step(self) -> None:
        self._hurry.clear()
        await self.seed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEAL_SECONDS):
                await self._hurry.wait()

    async def seed(self) -> None:
        calls: list[TaskCall] = []
        for function, name in self._names().items():
            perpetual = plan_for(function).single(Perpetual)
            if perpetual is None or not perpetual.automatic or await self._is_buried(name):
                continue
            calls.append(self._docket.call(name, when=perpetual.first_time(self._docket.now()), key=name)())
        if calls:
            for execution in await self._docket.add_many(calls):
                if execution.schedule_exception is not None:
                    raise execution.schedule_exception

    def _names(self) -> dict[TaskFunction, str]:
        """Every function once, by its own name; one that is known by other names only, by the first of them."""
        names: dict[TaskFunction, str] = {}
        for name, function in self._docket.tasks.items():
            if function not in names or name == getattr(function, "__name__", None):
                names[function] = name
        return names

    async def _is_buried(self, name: str) -> bool:
        """An automatic task that kills its workers must not be brought back to kill more."""
        dead = text_bytes(self._docket.keys.dead)
        buried = await self._docket.server.ask(dead, "ZSCORE", dead, text_bytes(name)) is not None
        if buried and name not in self._buried_told:
            self._buried_told.add(name)
            logger.error(
                "automatic task %s is a dead letter and is not scheduled again until it is removed from there",
                name,
            )
        return buried
