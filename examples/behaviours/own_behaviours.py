"""Your own behaviours: around the body, after a failure, after the end, before admission, and for
every task of a worker."""

import asyncio
from datetime import timedelta
from typing import Any

from docket import CurrentExecution, Depends, Docket, Execution, Worker
from docket.dependencies import (
    AdmissionBlocked,
    CompletionHandler,
    Dependency,
    FailureHandler,
    Runtime,
    TaskOutcome,
    current_execution,
)

events: list[str] = []


class Measured(Runtime):
    """Runs code before and after the body."""

    async def __aenter__(self) -> "Measured":
        return self

    async def run(self, execution: Execution, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        events.append("begin")
        try:
            return await function(*args, **kwargs)
        finally:
            events.append("end")


class OnceMore(FailureHandler):
    """Retries a failed task once, later."""

    async def __aenter__(self) -> "OnceMore":
        return self

    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
        if execution.attempt > 1:
            return False
        execution.attempt += 1
        execution.when += timedelta(milliseconds=10)
        await execution.schedule(replace=True)  # stored together with the end of this run
        return True


class Announced(CompletionHandler):
    """Logs the outcome. False: do not schedule the task again."""

    async def __aenter__(self) -> "Announced":
        return self

    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
        events.append("failed" if outcome.exception else "succeeded")
        return False


class NotOnTheFirstTry(Dependency[None]):
    """Admits a task only at its second try."""

    seen: set[str] = set()

    async def __aenter__(self) -> None:
        execution = current_execution.get()
        if execution.key not in self.seen:
            self.seen.add(execution.key)
            raise AdmissionBlocked(execution, "the doorman", retry_delay=timedelta(milliseconds=10))


async def fragile(
    measured: Measured = Measured(),
    once_more: OnceMore = OnceMore(),
    announced: Announced = Announced(),
    execution: Execution = CurrentExecution(),
) -> None:
    if execution.attempt == 1:
        raise RuntimeError("the first time goes wrong")


async def guarded(door: None = NotOnTheFirstTry()) -> str:
    return "let in"


async def audit() -> None:
    events.append(f"audit {current_execution.get().function_name}")


async def main() -> None:
    async with Docket(name="own", url="memory://own") as docket:
        await docket.add(fragile)()
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        assert events == ["begin", "end", "begin", "end", "succeeded"], events

        events.clear()
        visitor = await docket.add(guarded)()
        async with Worker(docket, dependencies={"audit": Depends(audit)}) as worker:
            await worker.run_until_finished()
        assert await visitor.get_result() == "let in"
        assert events == ["audit guarded", "audit guarded"]
    print("all as declared")


asyncio.run(main())
