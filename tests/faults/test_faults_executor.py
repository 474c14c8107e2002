"""asyncio's default executor belongs to users: with
every thread of it blocked, docket works as usual."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from docket import Docket, Worker
from docket.errors import ServerUnreachable
from docket.storage.client import hosts
from docket.testing.servers import find_binaries, make_certificates
from tests.waiting import WAIT_LIMIT, ends, eventually

from .conftest import Harness
from .counted_tasks import working
from .test_faults_server_kinds import place

# Much more than docket needs, and much less than for ever.
SECONDS = 60.0


@asynccontextmanager
async def blocked_executor() -> AsyncIterator[None]:
    """Nothing that is given to the default executor begins before the block is left."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    begun, release = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        release.wait()

    blocking = asyncio.create_task(asyncio.to_thread(block))
    await eventually(begun.is_set, "the only thread is blocked")
    try:
        yield
    finally:
        release.set()
        await blocking


async def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("kind", ["memory", "embedded", "unix", "tcp", "cluster", "sentinel"])
async def test_docket_does_not_wait_for_users_threads(harness: Harness, kind: str) -> None:
    with place(harness, kind) as url:
        url = url.replace("127.0.0.1", "localhost")
        async with blocked_executor(), asyncio.timeout(SECONDS), Docket(harness.name, url) as docket:
            docket.register(double)
            async with Worker(docket) as worker:
                running = asyncio.create_task(worker.run_forever())
                execution = await docket.add(double)(21)
                assert await execution.get_result(timeout=WAIT_LIMIT) == 42
            await ends(running)


async def test_docket_connects_again_without_users_threads(harness: Harness) -> None:
    server = harness.server(tcp=True)
    docket = await harness.docket(url=harness.url.replace("127.0.0.1", "localhost"))
    docket.register(double)
    async with working(await harness.worker(docket)):
        assert await (await docket.add(double)(1)).get_result(timeout=WAIT_LIMIT) == 2
        async with blocked_executor(), asyncio.timeout(SECONDS):
            for number in range(3):
                for kind in ("normal", "pubsub"):
                    server.run("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                while True:
                    try:
                        execution = await docket.add(double)(number)
                        break
                    except ServerUnreachable:
                        await asyncio.sleep(0.05)
                assert await execution.get_result(timeout=WAIT_LIMIT) == 2 * number


async def test_a_name_with_an_address_nobody_listens_on_leads_to_the_next(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = harness.server(tcp=True)
    monkeypatch.setattr(hosts, "_resolve", lambda host, port: ["127.0.0.2", "127.0.0.1"])
    server.run("CONFIG", "SET", "bind", "127.0.0.1")
    async with Docket(harness.name, f"redis://some.name:{server.port}/0") as docket:
        docket.register(double)
        async with Worker(docket) as worker:
            execution = await docket.add(double)(2)
            await worker.run_until_finished()
            assert await execution.get_result(timeout=WAIT_LIMIT) == 4


async def test_a_resolver_that_fails_or_is_silent_costs_no_lease(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last known addresses are used. The worker's connection
    is cut meanwhile, and its lease is two seconds."""
    server = harness.server(tcp=True)
    docket = await harness.docket(url=harness.url.replace("127.0.0.1", "localhost"))
    starts, release, silence = 0, asyncio.Event(), threading.Event()

    async def long() -> None:
        nonlocal starts
        starts += 1
        await release.wait()

    def silent(host: str, port: int) -> list[str]:
        silence.wait()
        raise OSError("no answer")

    docket.register(long)
    async with working(await harness.worker(docket)) as run:
        execution = await docket.add(long)()
        await eventually(lambda: starts == 1, "it runs")
        monkeypatch.setattr(hosts, "_resolve", silent)
        server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        near = await harness.docket(docket.name, url=f"redis://127.0.0.1:{server.port}/0")
        near.register(long)
        async with working(await harness.worker(near)):
            await asyncio.sleep(5.0)
            assert not run.done()
            release.set()
            silence.set()
            await execution.get_result(timeout=WAIT_LIMIT)
    assert starts == 1


async def test_tls_verifies_the_name_and_not_the_address(harness: Harness) -> None:
    binary = next((binary for binary in find_binaries() if binary.speaks_tls), None)
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("no server with TLS or no openssl on this machine")
    certificates = make_certificates(harness.folder, "DNS:localhost")
    server = harness.server(binary=binary, certificates=certificates)
    options = f"ssl_ca_certs={certificates.authority}"
    async with blocked_executor(), asyncio.timeout(SECONDS):
        async with Docket(harness.name, f"rediss://localhost:{server.port}/0?{options}") as docket:
            docket.register(double)
            async with Worker(docket) as worker:
                execution = await docket.add(double)(2)
                await worker.run_until_finished()
                assert await execution.get_result(timeout=WAIT_LIMIT) == 4
                client = docket.server.threaded_client(lambda: SECONDS)
                assert client.execute_command("PING") == b"PONG"
                client.close()
        with pytest.raises(ServerUnreachable, match="certificate"):
            async with Docket(harness.name, f"rediss://127.0.0.1:{server.port}/0?{options}"):
                pass
