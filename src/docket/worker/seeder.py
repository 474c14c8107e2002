"""Schedules automatic tasks, and puts them back if they ever fall off."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from docket.dependencies import Perpetual, plan_for
from docket.errors import TRANSIENT
from docket.execution import TaskCall, TaskFunction
from docket.ledger import Seed

from .deploys import deploy_fingerprint
from .registration import Identity
from .service import Service

if TYPE_CHECKING:
    from docket.docket import Docket

logger: logging.Logger = logging.getLogger("docket.worker")

HEAL_SECONDS = 30.0
# How long the worker that looks after them may be silent before another does.
HOLD_SECONDS = 45.0


class Seeder(Service):
    """Adds every automatic task under its own name:
    where it is there already, that changes nothing.

    A chain that somebody has cancelled stays so until a worker of a newer deploy starts.
    """

    name = "seeding"

    def __init__(
        self, docket: Docket, identity: Identity, now: Callable[[], datetime], labels: dict[str, str], most_pause: float
    ) -> None:
        super().__init__(labels, most_pause)
        self._docket = docket
        # The server's time: by a clock that is ahead the next slot would be missed, by one that is
        # behind it would run twice.
        self._now = now
        self._told: set[str] = set()
        self._deploy = deploy_fingerprint(docket.tasks)
        self._identity = identity
        self._hurry = asyncio.Event()

    async def begin(self) -> None:
        """Seeds before the worker starts; if the server cannot take it now, a later step will."""
        try:
            await self.seed()
        except TRANSIENT as error:
            self._docket.server.outages.failed(self, self.name, error)
            self.problem: str | None = str(error)

    def hurry(self) -> None:
        """The server came back empty: what is missing is put back now."""
        self._hurry.set()

    async def step(self) -> None:
        self._hurry.clear()
        # Of the workers that know these tasks one looks after them.
        if await self._docket.ledger.lead(f"seeding {self._deploy}", self._identity.id, int(HOLD_SECONDS * 1000)):
            await self.seed()
        self.is_well()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEAL_SECONDS):
                await self._hurry.wait()

    async def seed(self) -> None:
        automatic = self._automatic()
        if not automatic:
            return
        calls: list[TaskCall] = []
        seeds = await self._docket.ledger.seedable(self._deploy, list(automatic))
        for (name, perpetual), seed in zip(automatic.items(), seeds, strict=True):
            if seed is Seed.SCHEDULE:
                call = self._docket.call(name, when=perpetual.first_time(self._now()), key=name)()
                calls.append(dataclasses.replace(call, seed=True))
            else:
                self._tell_once(name, seed)
        if calls:
            for execution in await self._docket.add_many(calls):
                if execution.schedule_exception is not None:
                    raise execution.schedule_exception

    def _automatic(self) -> dict[str, Perpetual]:
        found: dict[str, Perpetual] = {}
        for function, name in self._names().items():
            perpetual = plan_for(function).single(Perpetual)
            if perpetual is not None and perpetual.automatic:
                found[name] = perpetual
        return found

    def _names(self) -> dict[TaskFunction, str]:
        """Every function once, by its own name; one that is
        known by other names only, by the first of them."""
        names: dict[TaskFunction, str] = {}
        for name, function in self._docket.tasks.items():
            if function not in names or name == getattr(function, "__name__", None):
                names[function] = name
        return names

    def _tell_once(self, name: str, seed: Seed) -> None:
        """An automatic task that kills its workers must not be brought back to kill more; one that
        was cancelled stays so."""
        if name in self._told:
            return
        self._told.add(name)
        if seed is Seed.BURIED:
            logger.error(
                "automatic task %s is a dead letter and is not scheduled again until it is removed from there", name
            )
        else:
            logger.info(
                "automatic task %s was cancelled and is not scheduled again until a newer deploy starts or it is added by hand",
                name,
            )
