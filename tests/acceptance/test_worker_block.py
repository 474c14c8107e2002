"""What the code inside `async with Worker(…)` sees."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import Context

import pytest

from docket import Docket, Shared, Worker
from docket.dependencies import SharedContext, current_docket, current_worker, resolved_dependencies
from tests.running import run_everything, worker_for
from tests.waiting import within

VARIABLES = [current_docket, current_worker, SharedContext.stack, SharedContext.lock, SharedContext.resolved]


def test_the_block_sees_its_docket_and_its_worker(name: str, url: str) -> None:
    async def main() -> None:
        async with Docket(name=name, url=url) as docket, Worker(docket) as worker:
            assert current_docket.get() is docket
            assert current_worker.get() is worker
        for variable in VARIABLES:
            with pytest.raises(LookupError):
                variable.get()

    Context().run(asyncio.run, main())


async def test_the_block_resolves_the_values_that_its_tasks_share(docket: Docket) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncGenerator[object]:
        events.append("opened")
        yield object()
        events.append(f"closed for {current_worker.get().name}")

    seen: list[object] = []

    async def use(it: object = Shared(pool)) -> None:
        seen.append(it)

    await docket.add(use)()
    async with worker_for(docket, name="w") as worker:
        async with resolved_dependencies(use) as values:
            await within(worker.run_until_finished())
            assert seen == [values["it"]]
        assert events == ["opened"]
    assert events == ["opened", "closed for w"]


async def test_after_the_block_everything_is_as_before(docket: Docket) -> None:
    async with Worker(docket, name="outer") as outer:
        shared = SharedContext.resolved.get()
        async with Worker(docket, name="inner") as inner:
            assert current_worker.get() is inner
            assert SharedContext.resolved.get() is not shared
        assert current_worker.get() is outer
        assert SharedContext.resolved.get() is shared


async def test_after_a_block_that_failed_everything_is_as_before(docket: Docket) -> None:
    async with Worker(docket, name="outer") as outer:
        with pytest.raises(KeyError, match="inside"):
            async with Worker(docket, name="inner"):
                raise KeyError("inside")
        assert current_worker.get() is outer


async def test_a_block_may_be_left_in_another_context_than_it_was_entered_in(docket: Docket) -> None:
    worker = Worker(docket)
    await asyncio.create_task(worker.__aenter__(), context=Context())
    await within(worker.run_until_finished())
    await asyncio.create_task(worker.__aexit__(None, None, None), context=Context())

    await run_everything(docket)


async def test_blocks_may_be_left_in_any_order(docket: Docket) -> None:
    first, second = Worker(docket, name="first"), Worker(docket, name="second")
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    await second.__aexit__(None, None, None)
