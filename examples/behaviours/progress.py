"""A task that reports its progress."""

import asyncio
from typing import Annotated

from docket import Docket, ExecutionState, Logged, Progress, TaskLogger, Worker
from docket.execution import ExecutionProgress


async def import_rows(
    rows: Annotated[list[int], Logged(length_only=True)],  # logs show [len 5], not the rows
    progress: ExecutionProgress = Progress(),
    log=TaskLogger(),
) -> int:
    await progress.set_total(len(rows))
    for row in rows:
        await progress.increment()
        await progress.set_message(f"row {row}")
    log.info("imported %d rows", len(rows))
    return len(rows)


async def main() -> None:
    async with Docket(name="progress", url="memory://progress") as docket:
        execution = await docket.add(import_rows)([1, 2, 3, 4, 5])
        steps: list[int | None] = []

        async def follow() -> None:
            async for event in execution.subscribe():
                if event["type"] == "progress":
                    steps.append(event["current"])
                elif event["state"] is ExecutionState.COMPLETED:
                    return

        following = asyncio.create_task(follow())
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        await following
        assert await execution.get_result() == 5
        await execution.progress.sync()
        assert (execution.progress.current, execution.progress.total) == (5, 5)
        print("seen on the way:", steps)


asyncio.run(main())
