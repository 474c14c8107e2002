"""Tasks that go on for ever: perpetual ones, added by producers or automatic, and cron."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from docket import Cron, CurrentExecution, Execution, Perpetual

from .base import Producer, Work
from .body import body

EVERY_SECONDS = 0.4
KEYS = ("chain-0", "chain-1", "chain-2")


async def chain(
    token: str, step: int, perpetual: Perpetual = Perpetual(every=timedelta(seconds=EVERY_SECONDS))
) -> None:
    with body(token, step=step):
        perpetual.perpetuate(token, step + 1)


async def tick(
    step: int = 0, perpetual: Perpetual = Perpetual(every=timedelta(seconds=EVERY_SECONDS), automatic=True)
) -> None:
    with body("tick", step=step):
        perpetual.perpetuate(step + 1)


class EverySecond(Cron):
    """A time every second: a run of a minute must see many of them."""

    def slot_after(self, moment: datetime) -> datetime:
        return datetime.fromtimestamp(math.floor(moment.timestamp()) + 1, UTC)


async def at_every_second(
    cron: EverySecond = EverySecond("* * * * *"), execution: Execution = CurrentExecution()
) -> None:
    with body("at_every_second", step=round(execution.when.timestamp() * 1000)):
        pass


class Chains(Work):
    """Each producer adds the same chains when it starts:
    all but the first addition change nothing."""

    name = "perpetual"
    functions = (chain, tick)
    endless = (*KEYS, "tick")

    async def begin(self, producer: Producer) -> None:
        for key in KEYS:
            await producer.add(chain, key, 0, key=key)


class CronWork(Work):
    name = "cron"
    functions = (at_every_second,)
    endless = ("at_every_second",)
