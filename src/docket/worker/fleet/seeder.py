"""Schedules automatic tasks, and schedules them again if they ever disappear."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable
from datetime import datetime

from docket.dependencies import Perpetual, plan_for
from docket.docket import Docket
from docket.errors import TRANSIENT, NotDurable
from docket.execution import TaskCall, TaskFunction
from docket.ledger import Seed
from docket.worker.service import Service

from .duties import SEEDING, Duties, deploy_fingerprint

logger: logging.Logger = logging.getLogger("docket.worker")

CHECK_SECONDS = 30.0
# After this long without a check, another worker takes over the seeding.
HOLD_SECONDS = 45.0


class Seeder(Service):
    """Adds every automatic task under its own name.
    Adding a task that is already there changes nothing.

    A cancelled chain stays cancelled until a worker of a newer deploy starts.
    """

    name = "seeding"

    def __init__(
        self, docket: Docket, duties: Duties, now: Callable[[], datetime], labels: dict[str, str], most_pause: float
    ) -> None:
        super().__init__(labels, most_pause)
        self._docket = docket
        # The server's time. With a fast clock a cron task would miss its next time; with a slow
        # clock it would run twice.
        self._now = now
        self._reported: set[str] = set()
        self._deploy = deploy_fingerprint(docket.tasks)
        self._duties = duties
        self._seed_now = asyncio.Event()

    async def begin(self) -> None:
        """Seeds before the worker starts. If the server is unreachable, a later step seeds."""
        try:
            await self.seed()
        except TRANSIENT as error:
            self._docket.server.outages.failed(self, self.name, error)
            self.problem: str | None = str(error)

    def seed_now(self) -> None:
        """Seeds without waiting for the next check: the server has lost its data."""
        self._seed_now.set()

    async def step(self) -> None:
        self._seed_now.clear()
        # One of the workers with these tasks seeds for all of them.
        if await self._duties.take(f"{SEEDING} {self._deploy}", HOLD_SECONDS):
            await self.seed()
        self.clear_problem()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await self._seed_now.wait()

    async def seed(self) -> None:
        automatic = self._automatic()
        if not automatic:
            return
        calls: list[TaskCall] = []
        seeds = await self._docket.ledger.tasks.seedable(self._deploy, list(automatic))
        for (name, perpetual), seed in zip(automatic.items(), seeds, strict=True):
            if seed is Seed.SCHEDULE:
                call = self._docket.call(name, when=perpetual.first_time(self._now()), key=name)()
                calls.append(dataclasses.replace(call, seed=True))
            else:
                self._report_once(name, seed)
        if calls:
            for execution in await self._docket.add_many(calls):
                # An automatic task that no replica has confirmed is seeded again if it gets lost.
                if execution.schedule_exception is not None and not isinstance(
                    execution.schedule_exception, NotDurable
                ):
                    raise execution.schedule_exception

    def _automatic(self) -> dict[str, Perpetual]:
        found: dict[str, Perpetual] = {}
        for function, name in self._names().items():
            perpetual = plan_for(function).single(Perpetual)
            if perpetual is not None and perpetual.automatic:
                found[name] = perpetual
        return found

    def _names(self) -> dict[TaskFunction, str]:
        """Every function once, by its own name if it is
        registered under it, else by its first name."""
        names: dict[TaskFunction, str] = {}
        for name, function in self._docket.tasks.items():
            if function not in names or name == getattr(function, "__name__", None):
                names[function] = name
        return names

    def _report_once(self, name: str, seed: Seed) -> None:
        """Logs why an automatic task is not scheduled again:
        it took its workers down, or it was cancelled."""
        if name in self._reported:
            return
        self._reported.add(name)
        if seed is Seed.BURIED:
            logger.error(
                "automatic task %s is buried and is not scheduled again until it is retried: docket dead retry %s",
                name,
                name,
            )
        else:
            logger.info(
                "automatic task %s was cancelled and is not scheduled again until a newer deploy starts or the task is "
                "added explicitly",
                name,
            )
