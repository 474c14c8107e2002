"""A docket and its workers start while their server is away."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from typing import Annotated, Any

import pytest
import redis.exceptions

from docket import ConcurrencyLimit, Docket, Worker
from docket.errors import ServerUnreachable, ServerUnsuitable
from docket.storage import server as storage_server
from docket.storage.client import connection
from tests.waiting import SECONDS, ends, eventually, within

from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .servers import Server

AWAY = ("refuses", "silent")


def take_away(server: Server, how: str) -> None:
    server.pause() if how == "silent" else server.kill()


def bring_back(server: Server, how: str) -> None:
    server.wake() if how == "silent" else server.start()


@pytest.mark.parametrize("how", AWAY)
async def test_an_application_starts_while_its_server_is_away_and_its_worker_works_when_it_is_there(
    harness: Harness, how: str
) -> None:
    server = harness.server(tcp=True)
    take_away(server, how)
    docket = await harness.docket(add_patience=timedelta(0))
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)) as run:
        with pytest.raises(redis.exceptions.RedisError) as raised:
            await counted.add("refused")
        assert isinstance(raised.value, ServerUnreachable)
        with pytest.raises(redis.exceptions.RedisError):
            await docket.snapshot()
        assert not run.done()
        bring_back(server, how)
        await counted.works("after")
        await docket.wait_for_strikes_loaded()
    assert counted.starts["after"] == 1


async def test_a_worker_with_limits_starts_while_its_server_is_read_only(harness: Harness) -> None:
    server = harness.server()
    docket = await harness.docket()
    holds, released, last = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def limited(customer: Annotated[int, ConcurrencyLimit(1)], is_last: bool = False) -> None:
        (last if is_last else holds).set()
        await released.wait()

    docket.register(limited)
    await docket.add(limited)(1)
    async with working(await harness.worker(docket)):
        await within(holds.wait())
        # As after a fail-over: the server takes no writes for a while.
        server.run("REPLICAOF", "127.0.0.1", "1")
        try:
            async with working(await harness.worker(docket)) as second:
                await asyncio.wait([second], timeout=0.5)
                server.run("REPLICAOF", "NO", "ONE")
                released.set()
                await docket.add(limited)(1, is_last=True)
                await within(last.wait())
                assert not second.done(), "it waits for the server instead of ending"
        finally:
            released.set()


@pytest.mark.parametrize(
    "url", ["unix://{folder}/nobody", "redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/m/0"]
)
async def test_every_kind_of_server_may_be_away_when_a_docket_is_opened(harness: Harness, url: str) -> None:
    docket = await harness.docket(url=url.format(folder=harness.folder), add_patience=timedelta(0))
    with pytest.raises(redis.exceptions.RedisError):
        await docket.snapshot()


@pytest.mark.parametrize("method", ["run_forever", "run_until_finished"])
@pytest.mark.parametrize("how", ["stop", "cancel", "leave", "close the docket"])
async def test_a_worker_that_waits_for_its_server_can_be_stopped(harness: Harness, how: str, method: str) -> None:
    server = harness.server(tcp=True)
    server.kill()
    async with Docket(harness.name, harness.url) as docket:
        async with Worker(docket) as worker:
            run = asyncio.create_task(getattr(worker, method)())
            await eventually(lambda: docket.server.outages.is_on, "it waits")
            await asyncio.sleep(0.1)
            assert not run.done()
            if how == "stop":
                worker.stop()
            elif how == "cancel":
                run.cancel()
            elif how == "close the docket":
                await docket.__aexit__(None, None, None)
            if how != "leave":
                await ends(run, 20)
        await ends(run, 20)


async def test_a_server_that_comes_with_another_password_ends_the_wait_of_a_worker(harness: Harness) -> None:
    server = harness.server(tcp=True)
    server.kill()
    docket = await harness.docket()
    worker = await harness.worker(docket)
    run = asyncio.create_task(worker.run_forever())
    await eventually(lambda: docket.server.outages.is_on, "it waits")
    harness.server("--requirepass", "secret", tcp=True, port=server.port)
    with pytest.raises(ServerUnsuitable):
        await ends(run, 20)


async def test_a_server_that_refuses_the_password_is_an_error_when_a_docket_is_opened(harness: Harness) -> None:
    server = harness.server("--requirepass", "right", tcp=True)
    with pytest.raises(ServerUnsuitable):
        async with Docket(harness.name, f"redis://:wrong@127.0.0.1:{server.port}/0"):
            pass


async def test_worker_run_waits_for_its_server(harness: Harness) -> None:
    server = harness.server(tcp=True)
    server.kill()
    process = harness.worker_process()
    await eventually(lambda: "trying again until the server is back" in process.output, "it waits")
    server.start()
    docket = await harness.docket()
    await harness.at_work(docket, process)


async def test_worker_run_gives_up_when_its_wait_is_over(harness: Harness) -> None:
    server = harness.server(tcp=True)
    server.kill()
    with pytest.raises(ServerUnreachable):
        await Worker.run(harness.name, harness.url, wait=timedelta(seconds=0.3))
    server.start()
    server.pause()
    with pytest.raises(ServerUnreachable, match="no answer"):
        await Worker.run(harness.name, harness.url, wait=timedelta(seconds=0.3))


async def test_worker_run_does_not_wait_for_another_password(harness: Harness) -> None:
    harness.server("--requirepass", "right", tcp=True)
    with pytest.raises(ServerUnsuitable):
        async with asyncio.timeout(SECONDS):
            await Worker.run(harness.name, harness.url, wait=timedelta(hours=1))


@pytest.mark.parametrize("opened", ["before", "while"])
async def test_many_calls_to_a_silent_server_share_one_attempt_and_its_failure(
    harness: Harness, opened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait, one connection at a time is tried,
    and none of them waits for the attempts of the others."""
    attempts: list[float] = []
    real = connection.open_pipeline

    async def open_pipeline(*args: Any) -> Any:
        attempts.append(asyncio.get_running_loop().time())
        return await real(*args)

    monkeypatch.setattr(connection, "open_pipeline", open_pipeline)
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 1.0)
    server = harness.server(tcp=True)
    if opened == "while":
        server.pause()
    docket = await harness.docket(add_patience=timedelta(0))
    counted = CountedTasks(docket)
    if opened == "before":
        await counted.add("before")
        server.pause()
        # This one ends the connection.
        with pytest.raises(redis.exceptions.RedisError):
            await docket.snapshot()
    attempts.clear()

    async def ask(key: str) -> None:
        with pytest.raises(redis.exceptions.RedisError):
            await docket.get_execution(key)

    await asyncio.gather(*(ask(f"k{n}") for n in range(12)))
    assert len(attempts) <= 2, "one for the calls; the strikes may have begun another"


async def test_an_add_that_waits_behind_others_shares_their_failure_and_says_that_it_was_not_sent(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes silent while a docket is open. No add
    waits for an attempt of its own after that of the others."""
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 1.0)
    server = harness.server(tcp=True)
    docket = await harness.docket(add_patience=timedelta(0))
    counted = CountedTasks(docket)
    await counted.add("before")
    server.pause()
    attempts: list[Any] = []
    real = connection.open_pipeline

    async def open_pipeline(*args: Any) -> Any:
        attempts.append(args)
        return await real(*args)

    monkeypatch.setattr(connection, "open_pipeline", open_pipeline)

    async def add(key: str) -> ServerUnreachable:
        with pytest.raises(ServerUnreachable) as raised:
            await docket.add(counted.short, key=key)()
        return raised.value

    adding: list[asyncio.Task[ServerUnreachable]] = []
    for n in range(12):
        adding.append(asyncio.create_task(add(f"k{n}")))
        # Each finds the others under way.
        await asyncio.sleep(0.01)
    errors = await asyncio.gather(*adding)
    assert not attempts
    assert [error.maybe_stored for error in errors] == [True] * 4 + [False] * 8


async def test_a_repeat_that_finds_no_connection_says_that_nothing_was_stored(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 1.0)
    server = harness.server(tcp=True)
    docket = await harness.docket(add_patience=timedelta(seconds=0.5))
    counted = CountedTasks(docket)
    await counted.add("before")
    server.pause()
    with pytest.raises(redis.exceptions.RedisError):
        await docket.snapshot()
    with pytest.raises(ServerUnreachable) as raised:
        await docket.add(counted.short, key="never sent")()
    assert not raised.value.maybe_stored


async def test_large_arguments_wait_for_one_failure_and_not_for_one_each(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 1.0)
    server = harness.server(tcp=True)
    docket = await harness.docket(add_patience=timedelta(seconds=0.5))

    async def keep(data: bytes) -> None: ...

    large = b"x" * 200_000
    await docket.add(keep)(large)
    server.pause()
    attempts: list[Any] = []
    real = connection.open_pipeline

    async def open_pipeline(*args: Any) -> Any:
        attempts.append(args)
        return await real(*args)

    monkeypatch.setattr(connection, "open_pipeline", open_pipeline)

    async def add() -> bool:
        with pytest.raises(ServerUnreachable) as raised:
            await docket.add(keep)(large)
        return raised.value.maybe_stored

    assert await asyncio.gather(*(add() for _ in range(12))) == [False] * 12
    assert len(attempts) <= 2


async def test_a_cluster_url_that_leads_to_a_plain_server_is_told_to_callers_and_not_to_asyncio(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    server = harness.server(tcp=True)
    server.kill()
    async with Docket(harness.name, f"redis+cluster://127.0.0.1:{server.port}/0"):
        server.start()
        strikes = next(task for task in asyncio.all_tasks() if task.get_name().endswith(" - strikes"))
        # Nobody asks for its outcome.
        await eventually(strikes.done, "the strikes cannot be loaded")
        del strikes
    gc.collect()
    assert not [r for r in caplog.records if r.name == "asyncio"]
