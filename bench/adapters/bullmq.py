"""Node. `new Worker(…, {concurrency})` in one process, defaults otherwise; `removeOnComplete`
where results are not measured. In bulk: `addBulk`. A pipe to Node carries the orders, so figures
for one task at a time include about 0.1 ms of it. A mark is four calls of the system, since Node
maps no files. It logs nothing by default."""

from __future__ import annotations

import os
from pathlib import Path

from bench.adapters.lines import LineProducer
from bench.adapters.serving import CONCURRENCY

PROGRAM = str(Path(__file__).with_suffix(".mjs"))


class BullProducer(LineProducer):
    async def round_trip(self, number: int) -> int:
        return await self.ask([number], waits=True)


def produce() -> LineProducer:
    return BullProducer("node", PROGRAM, "produce")


def work() -> None:
    os.environ["BENCH_CONCURRENCY"] = str(CONCURRENCY)
    os.execvp("node", ["node", PROGRAM, "work"])
