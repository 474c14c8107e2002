"""Users of a server that are limited to one docket: each role does its whole job on every server
program, the server denies nothing on the way, and what a role may not do is one clear error."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from docket import (
    ConcurrencyLimit,
    Cooldown,
    CurrentDocket,
    Docket,
    Execution,
    ExecutionCancelled,
    Perpetual,
    Progress,
    RateLimit,
    ReasonCode,
    Retry,
    Worker,
)
from docket.dependencies import Debounce
from docket.errors import NotPermitted
from docket.inspection.live import Observer
from docket.storage.keys import Keys
from docket.storage.permissions import AclRole, channel_rules, commands, key_rule, rules
from docket.testing.servers import Cluster, ServerNotFound, ServerProcess
from tests.running import running
from tests.waiting import SECONDS, WAIT_LIMIT, eventually

NAME = "shop-1"
# redis-py introduces itself, and workers ask for the eviction policy: both do without an answer.
HARMLESS = {"client", "client|setinfo", "config", "config|get"}
LARGE = b"x" * 200_000


@pytest.fixture(scope="module", params=["valkey", "redis-7", "redis-6.2"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    try:
        server = ServerProcess(binary=request.param, tcp=True)
    except ServerNotFound:
        pytest.skip(f"no {request.param} on this machine")
    with server:
        for role in AclRole:
            set_user(server, role.value, rules(role, Keys(NAME)))
        yield server


@pytest.fixture(autouse=True)
def no_data(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        server: ServerProcess = request.getfixturevalue("server")
        server.run("FLUSHALL")
        server.run("ACL", "LOG", "RESET")


def set_user(server: ServerProcess, name: str, words: str) -> None:
    server.run("ACL", "SETUSER", name, "reset", "on", f">{name}-secret", *words.split())


def url(server: ServerProcess, user: str) -> str:
    return f"redis://{user}:{user}-secret@127.0.0.1:{server.port}/0"


def denied(server: ServerProcess) -> set[str]:
    with server.client(decode_responses=True) as client:
        return {str(entry["object"]).lower() for entry in client.acl_log()} - HARMLESS


async def double(n: int) -> int:
    return 2 * n


async def large(value: bytes) -> bytes:
    return value


async def forever() -> None:
    await asyncio.Event().wait()


async def flaky(key: str, retry: Retry = Retry(attempts=2)) -> str:
    if retry.attempt == 1:
        raise ValueError("once")
    return key


async def limited(
    n: int,
    one: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
    rate: RateLimit = RateLimit(limit=1, per=timedelta(milliseconds=50)),
) -> int:
    await asyncio.sleep(0.01)
    return n


async def cooled(cooldown: Cooldown = Cooldown(timedelta(milliseconds=50))) -> None: ...


async def settled(debounce: Debounce = Debounce(timedelta(milliseconds=50))) -> None: ...


async def repeats(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=10))) -> None: ...


async def progresses(progress: Progress = Progress()) -> None:
    await progress.set_total(10)
    await progress.increment(5)


async def fans_out(docket: Docket = CurrentDocket()) -> None:
    await docket.add(double, key="child")(1)


TASKS = [double, large, forever, flaky, limited, cooled, settled, repeats, progresses, fans_out]


def open_docket(server: ServerProcess, role: AclRole) -> Docket:
    docket = Docket(NAME, url(server, role.value), heartbeat_interval=timedelta(milliseconds=200))
    for task in TASKS:
        docket.register(task)
    return docket


async def test_a_producer_does_its_whole_job(server: ServerProcess) -> None:
    async with open_docket(server, AclRole.PRODUCER) as producer:
        soon = datetime.now(UTC) + timedelta(hours=1)
        later = await producer.add(double, soon, key="later")(1)
        await producer.replace(double, soon, "later")(2)
        await producer.add(large, soon, key="large")(LARGE)
        await producer.add_many(producer.call(double)(n) for n in range(100))
        events = later.subscribe()
        assert (await anext(events))["type"] == "state"
        await events.aclose()  # type: ignore[attr-defined]
        assert (await producer.snapshot()).total_tasks == 102
        await producer.strike("double", "n", "==", 7)
        await producer.restore("double", "n", "==", 7)
        await producer.cancel("large")
        with pytest.raises(ExecutionCancelled):
            await (await producer.get_execution("large") or later).get_result(timeout=WAIT_LIMIT)
        assert await producer.clear() == 101
        async with open_docket(server, AclRole.WORKER) as docket, Worker(docket) as worker, running(worker):
            assert await (await producer.add(double)(21)).get_result(timeout=WAIT_LIMIT) == 42
            assert await (await producer.add(large)(LARGE)).get_result(timeout=WAIT_LIMIT) == LARGE
            running_task = await producer.add(forever)()
            await eventually(lambda: worker.is_working, "the worker works")
            await producer.cancel(running_task.key)
            with pytest.raises(ExecutionCancelled):
                await running_task.get_result(timeout=WAIT_LIMIT)
    assert denied(server) == set()


async def test_a_worker_does_its_whole_job(server: ServerProcess) -> None:
    async with open_docket(server, AclRole.WORKER) as docket:
        await docket.add(fans_out)()
        executions: list[Execution[Any]] = [await docket.add(limited)(n) for n in range(5)]
        executions += [await docket.add(flaky)("f"), await docket.add(large)(LARGE), await docket.add(progresses)()]
        for _ in range(2):
            await docket.add(cooled)()
            await docket.add(settled)()
        await docket.add(double, datetime.now(UTC) + timedelta(milliseconds=100), key="later")(3)
        held = await docket.add(forever, key="held")()
        async with Worker(docket) as one, Worker(docket) as two, running(one), running(two):
            for execution in executions:
                await execution.get_result(timeout=WAIT_LIMIT)
            for key in ("child", "later"):
                found = await docket.get_execution(key)
                assert found is not None
                await found.get_result(timeout=WAIT_LIMIT)
            # An idle worker gets tasks directly, and waits in a blocking read.
            for n in range(20):
                await (await docket.add(double)(n)).get_result(timeout=WAIT_LIMIT)
            await docket.cancel(held.key)
            with pytest.raises(ExecutionCancelled):
                await held.get_result(timeout=WAIT_LIMIT)
            chain = await docket.add(repeats, key="chain")()
            await chain.get_result(timeout=WAIT_LIMIT)
            await docket.cancel("chain")
            # Longer than a lease.
            await asyncio.sleep(1.5)
        assert await docket.workers() == []
    assert denied(server) == set()


async def test_an_observer_with_the_rules_of_an_older_release_asks_why(server: ServerProcess) -> None:
    older = rules(AclRole.OBSERVER, Keys(NAME))
    for command in ("sismember", "xpending", "zrangebylex", "zrangebyscore", "zrevrangebylex", "zrevrangebyscore"):
        older = older.replace(f" +{command}", "")
    set_user(server, "older", older)
    async with open_docket(server, AclRole.WORKER) as docket, Docket(NAME, url(server, "older")) as observer:
        await docket.ledger.fleet.register("w~1", 600_000, ["double"])
        await docket.add(double, key="task")(1)
        assert (await observer.why("task")).code is ReasonCode.READY
        assert await docket.server.client.xreadgroup("docket-workers", "w~1", {docket.keys.stream: ">"})
        reason = await observer.why("task")
        assert (reason.code, reason.worker) == (ReasonCode.DELIVERED, None)
        assert (await docket.why("task")).worker == "w"
        await docket.cancel("task")
        assert (await observer.why("task")).code is ReasonCode.FINISHED


async def test_an_observer_sees_everything_and_changes_nothing(server: ServerProcess) -> None:
    async with (
        open_docket(server, AclRole.WORKER) as docket,
        open_docket(server, AclRole.OBSERVER) as observer,
        Worker(docket) as worker,
    ):
        done = await docket.add(large)(LARGE)
        assert (await observer.why(done.key)).code is ReasonCode.NO_WORKER
        await docket.add(double, datetime.now(UTC) + timedelta(hours=1), key="later")(1)
        view = Observer(observer)
        async with view.listening(), running(worker):
            await done.get_result(timeout=WAIT_LIMIT)
            held = await docket.add(forever, key="held")()
            watched = await observer.get_execution("held")
            assert watched is not None
            events = watched.subscribe()
            assert (await anext(events))["type"] == "state"
            await eventually(lambda: view.state.totals.started == 2, "the observer hears the events")
            await view.refresh()
            assert view.state.trouble is None
            assert view.state.refused is None
            assert view.state.census is not None
            assert view.state.census.running == 1
            assert [info.name for info in await observer.workers()] == [worker.name]
            snapshot = await observer.snapshot()
            assert (len(snapshot.running), len(snapshot.future)) == (1, 1)
            finished = await observer.get_execution(done.key)
            assert finished is not None
            assert await finished.get_result(timeout=WAIT_LIMIT) == LARGE
            listed = await observer.ledger.queries.finished()
            assert done.key in str(listed)
            await events.aclose()  # type: ignore[attr-defined]
            await docket.cancel(held.key)
        assert denied(server) == set()
        before = server.run("DBSIZE")
        for refused in (
            observer.add(double, key="no")(1),
            observer.cancel("later"),
            observer.strike("double"),
            observer.clear(),
        ):
            with pytest.raises(
                NotPermitted, match=r"the user 'observer' may not run [A-Z]+; its ACL rules lack \+[a-z]+"
            ):
                await refused
        assert server.run("DBSIZE") == before


async def test_an_observer_cannot_work(server: ServerProcess) -> None:
    async with open_docket(server, AclRole.OBSERVER) as docket, Worker(docket) as worker:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(NotPermitted, match=r"the user 'observer' may not run"):
                await worker.run_until_finished()


@pytest.mark.parametrize("role", AclRole)
async def test_another_docket_is_out_of_reach(server: ServerProcess, role: AclRole) -> None:
    with pytest.raises(NotPermitted) as raised:
        async with Docket("bank", url(server, role.value)) as docket:
            await docket.snapshot()
    assert raised.value.rule in ("~bank:*", "&docket/0/4:bank/* &docket/0/4:bank/task/*")
    assert f"the user '{role.value}' may not use the" in str(raised.value)
    assert str(raised.value.rule) in str(raised.value)


@pytest.mark.parametrize(
    ("without", "rule"),
    [
        ("command", "+xadd"),
        ("~", "~shop\\-1:*"),
        ("&", "&docket/0/6:shop\\-1/* &docket/0/6:shop\\-1/task/*"),
    ],
    ids=["command", "keys", "channels"],
)
async def test_a_refusal_names_the_rule_that_is_missing(server: ServerProcess, without: str, rule: str) -> None:
    words = rules(AclRole.PRODUCER, Keys(NAME)).split()
    kept = [word for word in words if word != rule and not word.startswith(without)]
    set_user(server, "lacking", " ".join(kept))
    with pytest.raises(NotPermitted) as raised:
        async with Docket(NAME, url(server, "lacking")) as docket:
            await docket.add(double)(1)
    assert raised.value.rule == rule
    assert rule in str(raised.value)
    assert "'lacking'" in str(raised.value)


async def test_an_observer_without_channels_is_told_so_instead_of_zeros(server: ServerProcess) -> None:
    words = rules(AclRole.OBSERVER, Keys(NAME)).split()
    tap = channel_rules(Keys(NAME)).split()[1]
    set_user(server, "deaf", " ".join(word for word in words if word != tap))
    async with Docket(NAME, url(server, "deaf")) as docket:
        view = Observer(docket)
        async with view.listening():
            await view.refresh()
            assert view.state.trouble is None
            assert view.state.refused is not None
            assert f"its ACL rules lack {channel_rules(Keys(NAME))}" in view.state.refused


async def test_on_a_cluster_the_patterns_have_the_hash_tag(server: ServerProcess) -> None:
    keys = Keys("shop", cluster=True)
    assert key_rule(keys) == "~{shop}:*"
    with Cluster(primaries=1, replicas=0, binary=server.binary) as cluster:
        set_user(cluster.nodes[0], "worker", rules(AclRole.WORKER, keys))
        address = f"redis+cluster://worker:worker-secret@127.0.0.1:{cluster.nodes[0].port}"
        async with Docket("shop", address) as docket, Worker(docket) as worker:
            execution = await docket.add(double)(4)
            await worker.run_until_finished()
            assert await execution.get_result(timeout=WAIT_LIMIT) == 8
        assert denied(cluster.nodes[0]) == set()


def test_roles_build_on_each_other() -> None:
    assert set(commands(AclRole.OBSERVER)) < set(commands(AclRole.PRODUCER)) < set(commands(AclRole.WORKER))
    writes = {"set", "hset", "xadd", "zadd", "del", "publish"}
    assert not writes & set(commands(AclRole.OBSERVER))


def test_the_page_about_servers_has_these_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "servers.md").read_text()
    shown = re.findall(r"^user (\w+) on >PASSWORD (.+)$", page, re.MULTILINE)
    wanted = [(role.value, rules(role, Keys("shop"))) for role in AclRole]
    assert shown == wanted, "`docket acl --docket shop` prints the rules; copy them to docs/servers.md"
