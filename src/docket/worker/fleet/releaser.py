"""Lets the tasks of a resumed pause go on, a few at a time (docs/design/pause.md)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

from docket.ledger import Ledger
from docket.ledger.rules import Released
from docket.worker.running.pause_rules import PauseRules
from docket.worker.service import Service

from .duties import RESUMING, Duties

# One worker releases for the fleet. If it dies, another one takes over after this long.
HOLD_SECONDS = 3.0
# How often the others check, in seconds: at random, so that a large fleet does not ask at once.
SHORTEST_CHECK, LONGEST_CHECK = 2.0, 5.0
# How often the worker asks whether the last tasks were delivered, at first and at most.
SHORTEST_POLL, LONGEST_POLL = 0.005, 0.1
# A batch grows if workers receive it quickly, and shrinks if that takes long, so that other tasks
# have their turn about once a second.
FIRST_BATCH, LEAST_BATCH, MOST_BATCH = 100, 10, 500
QUICK_SECONDS, LONG_SECONDS = 0.05, 1.0
# The longest turn of other tasks.
LONGEST_TURN = 10.0


class Releaser(Service):
    """Moves held tasks to the front stream when workers have received the last ones. If other tasks
    wait, they get as much time as the last batch took, so nobody waits for all held tasks."""

    name = "releasing"

    def __init__(
        self, ledger: Ledger, rules: PauseRules, duties: Duties, labels: dict[str, str], most_pause: float
    ) -> None:
        super().__init__(labels, most_pause)
        self._ledger = ledger
        self._rules = rules
        self._duties = duties
        self._batch = FIRST_BATCH

    async def step(self) -> None:
        self._rules.changed.clear()
        await self._rules.load()
        if not self._rules.resuming:
            self.clear_problem()
            await self._rules.changed.wait()
        elif await self._leads():
            for rule in self._rules.resuming:
                await self._release(rule)
            self._rules.expect_change()
        else:
            self.clear_problem()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(SHORTEST_CHECK, LONGEST_CHECK)):
                    await self._rules.changed.wait()
            self._rules.expect_change()

    async def _leads(self) -> bool:
        return await self._duties.take(RESUMING, HOLD_SECONDS)

    async def _release(self, rule: str) -> None:
        """Releases one batch, once the front stream is empty, and waits until it was delivered.
        Then other tasks have their turn, for as long as this took and any of them wait."""
        began = time.monotonic()
        released = await self._ledger.pauses.release(rule, self._batch)
        released = await self._poll(rule, released, lambda seen: seen.front_waits)
        took = time.monotonic() - began
        if took < QUICK_SECONDS:
            self._batch = min(self._batch * 2, MOST_BATCH)
        elif took > LONG_SECONDS:
            self._batch = max(self._batch // 2, LEAST_BATCH)
        until = time.monotonic() + min(took, LONGEST_TURN)
        await self._poll(rule, released, lambda seen: seen.stream_waits and time.monotonic() < until)

    async def _poll(self, rule: str, released: Released, goes_on: Callable[[Released], bool]) -> Released:
        """Asks for the state of the streams, and moves nothing."""
        pause = SHORTEST_POLL
        while released.left and goes_on(released):
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_POLL)
            if not await self._leads():
                break
            released = await self._ledger.pauses.release(rule, 0)
        return released
