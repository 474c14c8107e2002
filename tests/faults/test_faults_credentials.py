"""Credentials that change while a worker works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from redis.credentials import CredentialProvider

from docket import Docket
from docket.errors import ServerUnreachable, ServerUnsuitable
from docket.storage import server as storage_server
from tests.waiting import WAIT_LIMIT, eventually

from .conftest import Harness
from .counted_tasks import CountedTasks, working
from .servers import Server


class Both(CredentialProvider):
    """As most providers are."""

    user = "first"

    def get_credentials(self) -> tuple[str, str]:
        return self.user, "secret"

    async def get_credentials_async(self) -> tuple[str, str]:
        return self.user, "secret"


class OnlyAsync(CredentialProvider):
    """Asks somebody over the network; its client belongs to one event loop."""

    user = "first"

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def get_credentials_async(self) -> tuple[str, str]:
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0.01)
        return self.user, "secret"


def permit(server: Server, user: str) -> None:
    server.run("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all")


@pytest.mark.parametrize("provider", [Both, OnlyAsync])
@pytest.mark.parametrize("busy", [True, False], ids=["running", "idle"])
async def test_a_worker_goes_on_when_its_credentials_are_rotated(
    harness: Harness, provider: type[Any], busy: bool
) -> None:
    """The old user is revoked, which ends its connections. The lease is renewed throughout."""
    server = harness.server(tcp=True)
    permit(server, "first")
    credentials = provider()
    docket = await harness.docket(lease=1.0, credential_provider=credentials)
    counted = CountedTasks(docket)
    worker = await harness.worker(docket)
    async with working(worker):
        await counted.works("before")
        running = await counted.hold("running") if busy else None
        name = worker.id
        permit(server, "second")
        credentials.user = "second"
        server.run("ACL", "DELUSER", "first")
        await counted.works("after")
        # Longer than the lease, twice.
        await asyncio.sleep(2.2)
        assert not worker.staff.registration.lease.lapsed
        assert worker.id == name, "the lease was never lost"
        counted.release.set()
        if running is not None:
            assert await running.get_result(timeout=WAIT_LIMIT) == "running"
            assert counted.starts["running"] == 1


class Behind(CredentialProvider):
    """Gives the revoked user for a while, as a cache does."""

    user = "first"
    stale = 0

    def get_credentials(self) -> tuple[str, str]:
        if self.stale > 0:
            self.stale -= 1
            return "first", "secret"
        return self.user, "secret"


async def test_a_worker_outlives_a_login_with_credentials_that_have_just_been_revoked(harness: Harness) -> None:
    server = harness.server(tcp=True)
    permit(server, "first")
    credentials = Behind()
    docket = await harness.docket(lease=2.0, credential_provider=credentials)
    counted = CountedTasks(docket)
    worker = await harness.worker(docket)
    async with working(worker):
        await counted.works("before")
        permit(server, "second")
        credentials.user, credentials.stale = "second", 4
        server.run("ACL", "DELUSER", "first")
        await eventually(lambda: credentials.stale == 0, "all connections ask the provider again")
        await counted.works("after")


async def test_a_docket_is_not_opened_with_credentials_that_the_server_refuses(harness: Harness) -> None:
    server = harness.server(tcp=True)
    permit(server, "second")
    with pytest.raises(ServerUnsuitable, match="invalid username-password"):
        await harness.docket(credential_provider=Both())


async def test_a_blocked_event_loop_does_not_keep_the_lease_from_its_credentials(harness: Harness) -> None:
    server = harness.server(tcp=True)
    permit(server, "first")
    docket = await harness.docket(lease=1.0, credential_provider=OnlyAsync())
    worker = await harness.worker(docket)
    starts = 0

    async def block() -> str:
        nonlocal starts
        starts += 1
        server.run("CLIENT", "KILL", "TYPE", "normal")
        time.sleep(3)
        return "done"

    async with working(worker):
        blocked = await docket.add(block)()
        await eventually(lambda: starts, "it runs")
        assert await blocked.get_result(timeout=WAIT_LIMIT) == "done"
        assert starts == 1


class Hanging(CredentialProvider):
    """Hangs while it is told to. Its calls ignore that they are cancelled."""

    def __init__(self) -> None:
        self.hangs = False
        self.hung = 0
        self.end = threading.Event()

    def now(self) -> tuple[str, str]:
        return "first", "secret"


class HangsInLoop(Hanging):
    async def get_credentials_async(self) -> tuple[str, str]:
        if self.hangs:
            self.hung += 1
        while self.hangs and not self.end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return self.now()


class HangsInThread(Hanging):
    def get_credentials(self) -> tuple[str, str]:
        if self.hangs:
            self.hung += 1
            self.end.wait(WAIT_LIMIT.total_seconds())
        return self.now()


class HangsEverywhere(HangsInLoop, HangsInThread): ...


async def fails_with(docket: Docket, words: str) -> bool:
    with pytest.raises(ServerUnreachable) as raised:
        await docket.snapshot()
    return words in str(raised.value)


@pytest.mark.parametrize("provider", [HangsInLoop, HangsInThread, HangsEverywhere])
async def test_a_worker_works_again_after_its_credential_provider_hung(
    harness: Harness, provider: type[Hanging], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage_server, "ANSWER_SECONDS", 1.0)
    server = harness.server(tcp=True)
    permit(server, "first")
    credentials = provider()
    docket = await harness.docket(lease=2.0, credential_provider=credentials)
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        await counted.works("before")
        credentials.hangs = True
        server.run("CLIENT", "KILL", "TYPE", "normal")
        server.run("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: credentials.hung >= 3, "it is asked again and again")
        # On a slow machine a call may give up before it has learned the reason.
        await eventually(lambda: fails_with(docket, "credential provider"), "a caller learns the reason")
        credentials.hangs = False
        try:
            # Those that hang do so still.
            await counted.works("after")
        finally:
            credentials.end.set()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_provider_that_blocks_its_thread_does_not_block_the_event_loop(harness: Harness) -> None:
    server = harness.server(tcp=True)
    permit(server, "first")
    asked, answered = threading.Event(), threading.Event()
    in_time: list[bool] = []

    class Slow(CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            asked.set()
            in_time.append(answered.wait(3))
            return "first", "secret"

    opening = asyncio.create_task(harness.docket(credential_provider=Slow()))
    await eventually(asked.is_set, "it is asked")
    answered.set()
    docket = await opening
    await CountedTasks(docket).add("k")
    assert all(in_time)


async def test_a_provider_that_says_it_is_for_event_loops_only_serves_a_worker_without_a_word(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    class Says(OnlyAsync):
        def get_credentials(self) -> tuple[str, str]:
            raise NotImplementedError("use get_credentials_async")

    # A server that keeps nothing on disk is a warning of its own.
    server = harness.server("--appendonly", "yes", tcp=True)
    permit(server, "first")
    docket = await harness.docket(lease=1.0, credential_provider=Says())
    worker = await harness.worker(docket)
    counted = CountedTasks(docket)
    async with working(worker):
        await counted.works("here")
        name = worker.id
        await asyncio.sleep(2.2)
        assert worker.id == name, "the lease was never lost"
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_a_provider_that_fails_is_one_clear_error(harness: Harness) -> None:
    class Fails(CredentialProvider):
        async def get_credentials_async(self) -> tuple[str, str]:
            raise LookupError("the vault is sealed")

    harness.server(tcp=True)
    docket = await harness.docket(credential_provider=Fails(), add_patience=timedelta(0))
    with pytest.raises(
        ServerUnreachable, match="credential provider failed: LookupError: the vault is sealed"
    ) as raised:
        await CountedTasks(docket).add("k")
    assert not raised.value.maybe_stored


async def test_a_cluster_is_asked_with_the_same_credentials(harness: Harness) -> None:
    server = harness.server("--cluster-enabled", "yes", tcp=True)
    server.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    await eventually(lambda: b"cluster_state:ok" in server.run("CLUSTER", "INFO"), "the cluster is up")
    permit(server, "first")
    server.run("ACL", "SETUSER", "default", "off")
    url = f"redis+cluster://127.0.0.1:{server.port}"
    docket = await harness.docket(url=url, credential_provider=OnlyAsync())
    counted = CountedTasks(docket)
    async with working(await harness.worker(docket)):
        await counted.works("here")
