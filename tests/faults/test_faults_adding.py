"""Calls whose answer is lost, or that cannot be sent:
what `add` and its like repeat, and what they say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from chaos.proxy import Proxy
from docket import Docket, ExecutionState
from docket.errors import ServerFull, ServerUnreachable
from docket.execution import Disposition
from tests.waiting import WAIT_LIMIT, eventually

from .conftest import Harness
from .counted_tasks import working
from .servers import Server

LONG = timedelta(seconds=60)


async def work(what: str = "") -> str:
    return what


@pytest.fixture
def server(harness: Harness) -> Server:
    return harness.server()


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server) as proxy:
        yield proxy


async def far_docket(harness: Harness, proxy: Proxy, **options: Any) -> Docket:
    """On the far side of the proxy, with a connection
    that works, to a server that knows the script."""
    docket = await harness.docket(url=proxy.url, **{"add_patience": LONG, **options})
    docket.register(work)
    await docket.add(work, key="before")()
    await docket.cancel("before")
    return docket


async def cut_off(docket: Docket, proxy: Proxy) -> None:
    """Returns when the docket has noticed that it has no connection, and cannot make one."""
    proxy.refuse(True)
    with pytest.raises(ServerUnreachable):
        await docket.get_execution("nobody")


async def stored(docket: Docket) -> int:
    return (await docket.ledger.queries.census()).unfinished


@pytest.mark.parametrize("size", [10, 100_000])
async def test_an_add_whose_answer_is_lost_makes_one_task(harness: Harness, proxy: Proxy, size: int) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    near.register(work)
    proxy.answers_to_cut = 1

    execution = await far.add(work)("x" * size)

    assert proxy.answers_to_cut == 0, "the answer was lost"
    assert execution.disposition is Disposition.SCHEDULED
    assert await stored(near) == 1
    async with working(await harness.worker(near)):
        assert await execution.get_result(timeout=WAIT_LIMIT) == "x" * size


async def test_a_task_that_has_run_before_its_add_is_repeated_does_not_run_again(
    harness: Harness, proxy: Proxy
) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    ran: list[str] = []

    async def note(what: str) -> str:
        ran.append(what)
        return what

    near.register(note)
    far.register(note)
    async with working(await harness.worker(near)):
        proxy.answers_to_cut = 1
        adding = asyncio.create_task(far.add(note)("once"))
        await eventually(lambda: not proxy.answers_to_cut, "the answer is lost")
        proxy.refuse(True)

        async def has_ended() -> bool:
            return bool(ran) and not await stored(near)

        await eventually(has_ended, "the task has run and ended")
        proxy.refuse(False)
        execution = await adding
        assert execution.disposition is Disposition.SCHEDULED
        assert await execution.get_result(timeout=WAIT_LIMIT) == "once"
    assert ran == ["once"]
    assert await stored(near) == 0


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("how", ["add", "many"])
@pytest.mark.parametrize("is_forgotten", [False, True], ids=["finished", "forgotten"])
async def test_a_request_that_arrives_after_its_repeat_has_run_stores_nothing(
    harness: Harness, proxy: Proxy, how: str, size: int, is_forgotten: bool
) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    ran: list[int] = []

    async def note(what: str) -> int:
        ran.append(len(what))
        return len(what)

    near.register(note)
    far.register(note)
    async with working(await harness.worker(near)):
        # The server knows all scripts by now.
        (known,) = await far.add_many([far.call(note)("")])
        await known.get_result(timeout=WAIT_LIMIT)
        proxy.requests_to_keep = 2 if size > 10 else 1
        if how == "add":
            execution = await far.add(note)("x" * size)
        else:
            (execution,) = await far.add_many([far.call(note)("x" * size)])
        assert proxy.kept, "the network keeps the request"
        assert execution.disposition is Disposition.SCHEDULED
        assert await execution.get_result(timeout=WAIT_LIMIT) == size
        if is_forgotten:
            async with near.redis() as client:
                await client.delete(near.runs_key(execution.key))
        await proxy.deliver_kept()

        assert await stored(near) == 0
        await (await far.add(note)("")).get_result(timeout=WAIT_LIMIT)
    assert ran == [0, size, 0]


async def test_a_request_after_a_refusal_may_arrive_after_its_repeat_too(harness: Harness, proxy: Proxy) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    near.register(work)
    proxy.refusal = b"-LOADING the server is loading"
    adding = asyncio.create_task(far.add(work)("once"))
    await eventually(lambda: proxy.refused, "the first request is refused")
    proxy.requests_to_keep, proxy.refusal = 1, None
    execution = await adding
    assert proxy.kept, "the network keeps the second request"
    async with working(await harness.worker(near)):
        assert await execution.get_result(timeout=WAIT_LIMIT) == "once"
        await proxy.deliver_kept()

        assert await stored(near) == 0


async def test_a_call_that_is_sent_again_while_its_first_sending_is_refused_is_one_task(
    harness: Harness, proxy: Proxy
) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    near.register(work)
    call = far.call(work)("once")
    proxy.refusal = b"-LOADING the server is loading"
    adding = asyncio.create_task(far.add_many([call]))
    await eventually(lambda: proxy.refused, "the first request is refused")
    (second,) = await near.add_many([call])
    async with working(await harness.worker(near)):
        await second.get_result(timeout=WAIT_LIMIT)
        proxy.refusal = None
        (first,) = await adding

        assert (first.disposition, second.disposition) == (Disposition.ALREADY_SCHEDULED, Disposition.SCHEDULED)
        assert await stored(near) == 0


async def test_an_add_of_a_key_whose_answer_is_lost_says_that_it_may_be_stored(harness: Harness, proxy: Proxy) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    proxy.answers_to_cut = 1

    with pytest.raises(ServerUnreachable, match="may be stored") as caught:
        await far.add(work, key="k")("once")

    assert caught.value.maybe_stored
    assert await stored(near) == 1


async def test_an_add_that_would_leave_no_record_is_not_repeated_after_a_lost_answer(
    harness: Harness, proxy: Proxy
) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy, execution_ttl=timedelta(0))
    proxy.answers_to_cut = 1

    with pytest.raises(ServerUnreachable) as caught:
        await far.add(work)("once")

    assert caught.value.maybe_stored
    assert await stored(near) == 1


async def test_a_replace_whose_answer_is_lost_says_that_it_may_be_stored(harness: Harness, proxy: Proxy) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    proxy.answers_to_cut = 1

    with pytest.raises(ServerUnreachable) as caught:
        await far.replace(work, datetime.now(UTC), "k")("once")

    assert caught.value.maybe_stored
    look = await near.ledger.tasks.get("k")
    assert look.task is not None
    assert look.task.generation == 1, "it was sent once"


@pytest.mark.parametrize("how", ["add", "keyed", "replace", "many"])
async def test_what_could_not_be_sent_is_sent_when_the_server_is_back(harness: Harness, proxy: Proxy, how: str) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    await cut_off(far, proxy)
    known = len(proxy.attempts)
    calls = {
        "add": lambda: far.add(work)(),
        "keyed": lambda: far.add(work, key="k")(),
        "replace": lambda: far.replace(work, datetime.now(UTC), "k")(),
        "many": lambda: far.add_many([far.call(work)()]),
    }
    adding: asyncio.Task[Any] = asyncio.ensure_future(calls[how]())
    await eventually(lambda: len(proxy.attempts) >= known + 2, "two more connections are tried")
    proxy.refuse(False)

    await adding
    assert await stored(near) == 1


async def test_a_server_that_stays_away_is_told_of_after_the_patience(harness: Harness, proxy: Proxy) -> None:
    far = await harness.docket(url=proxy.url, add_patience=timedelta(seconds=0.5))
    await cut_off(far, proxy)
    before = time.monotonic()

    with pytest.raises(ServerUnreachable, match="nothing was stored") as caught:
        await far.add(work)()

    assert not caught.value.maybe_stored
    assert 0.5 <= time.monotonic() - before < 30


async def test_without_patience_nothing_is_repeated(harness: Harness, proxy: Proxy) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy, add_patience=timedelta(0))
    proxy.answers_to_cut = 1

    with pytest.raises(ServerUnreachable) as caught:
        await far.add(work)()

    assert caught.value.maybe_stored
    assert await stored(near) == 1
    with pytest.raises(ValueError, match="add_patience"):
        Docket(add_patience=timedelta(seconds=-1))


async def test_of_many_each_is_told_the_truth(harness: Harness, proxy: Proxy) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    proxy.answers_to_cut = 1

    keyed, generated = await far.add_many([far.call(work, key="k")("b"), far.call(work)("a")])

    assert generated.disposition is Disposition.SCHEDULED
    assert keyed.disposition is Disposition.FAILED
    assert isinstance(keyed.schedule_exception, ServerUnreachable)
    assert keyed.schedule_exception.maybe_stored
    assert await stored(near) == 2


async def test_calls_in_bulk_whose_answer_is_lost_are_stored_once(harness: Harness, proxy: Proxy) -> None:
    near, far = await harness.docket(), await far_docket(harness, proxy)
    proxy.answers_to_cut = 1

    executions = await far.add_many([far.call(work)(str(number)) for number in range(500)])

    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    assert {execution.state for execution in executions} == {ExecutionState.QUEUED}
    assert await stored(near) == 500


async def test_what_a_server_refuses_for_a_while_is_sent_again(harness: Harness, server: Server) -> None:
    docket = await harness.docket(add_patience=LONG)
    with redis.Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", 1)
        adding = asyncio.create_task(docket.add(work, key="k")())
        await asyncio.wait([adding], timeout=0.3)
        assert not adding.done()
        client.replicaof("NO", "ONE")
        execution = await adding
    assert execution.state is ExecutionState.QUEUED
    assert await stored(docket) == 1


async def test_a_full_server_is_told_of_at_once(harness: Harness, server: Server) -> None:
    docket = await harness.docket(add_patience=LONG)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        async with asyncio.timeout(LONG.total_seconds() / 2):
            with pytest.raises(ServerFull):
                await docket.add(work)()
        client.config_set("maxmemory", 0)
    assert await stored(docket) == 0
