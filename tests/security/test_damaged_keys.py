"""Somebody writes other data over the keys of a docket. Workers go on trying, and work again when
the data is gone."""

from __future__ import annotations

import contextlib

import pytest

from docket import Docket, ServerUnsuitable
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually


async def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("name", ["stream", "front", "tasks", "running", "scheduled", "fleet", "offers"])
async def test_a_key_of_another_type_ends_no_worker(docket: Docket, name: str) -> None:
    docket.register(double)
    key = docket.key(name)
    async with docket.redis() as redis, worker_at_work(docket) as worker:
        assert await (await docket.add(double)(1)).get_result(timeout=WAIT_LIMIT) == 2
        await redis.delete(key)
        await redis.set(key, b"not what docket wrote")
        if name in ("tasks", "running"):
            # Only tasks make the worker look at these.
            with contextlib.suppress(ServerUnsuitable):
                await docket.add(double)(3)
        else:
            await eventually(lambda: worker.health_problem() is not None, "the worker has noticed")
        await redis.delete(key)
        await eventually(lambda: worker.health_problem() is None, "the worker is healthy", seen=worker.health_problem)
        assert await (await docket.add(double)(2)).get_result(timeout=WAIT_LIMIT) == 4
