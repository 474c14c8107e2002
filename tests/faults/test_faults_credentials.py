"""Credentials that change while a worker works."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from redis.credentials import CredentialProvider

from tests.waiting import eventually

from .conftest import Stage
from .pulse import MINUTE, Pulse, working
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
async def test_a_worker_goes_on_when_its_credentials_are_rotated(stage: Stage, provider: type[Any], busy: bool) -> None:
    """The old user is revoked, which ends its connections. The lease is renewed throughout."""
    server = stage.server(tcp=True)
    permit(server, "first")
    credentials = provider()
    docket = await stage.docket(lease=1.0, credential_provider=credentials)
    pulse = Pulse(docket)
    worker = await stage.worker(docket)
    async with working(worker):
        await pulse.works("before")
        running = await pulse.hold("running") if busy else None
        name = worker.id
        permit(server, "second")
        credentials.user = "second"
        server.run("ACL", "DELUSER", "first")
        await pulse.works("after")
        # Longer than the lease, twice.
        await asyncio.sleep(2.2)
        assert not worker.staff.tenure.lease.lapsed
        assert worker.id == name, "the lease was never lost"
        pulse.release.set()
        if running is not None:
            assert await running.get_result(timeout=MINUTE) == "running"
            assert pulse.starts["running"] == 1


async def test_a_blocked_event_loop_does_not_keep_the_lease_from_its_credentials(stage: Stage) -> None:
    server = stage.server(tcp=True)
    permit(server, "first")
    docket = await stage.docket(lease=1.0, credential_provider=OnlyAsync())
    worker = await stage.worker(docket)
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
        assert await blocked.get_result(timeout=MINUTE) == "done"
        assert starts == 1


async def test_a_cluster_is_asked_with_the_same_credentials(stage: Stage) -> None:
    server = stage.server("--cluster-enabled", "yes", tcp=True)
    server.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    await eventually(lambda: b"cluster_state:ok" in server.run("CLUSTER", "INFO"), "the cluster is up")
    permit(server, "first")
    server.run("ACL", "SETUSER", "default", "off")
    url = f"redis+cluster://127.0.0.1:{server.port}"
    docket = await stage.docket(url=url, credential_provider=OnlyAsync())
    pulse = Pulse(docket)
    async with working(await stage.worker(docket)):
        await pulse.works("here")
