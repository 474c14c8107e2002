"""Servers for tests: every kind starts, works with a docket, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from docket import Docket, Worker
from docket.testing.servers import (
    KINDS,
    Cluster,
    ReplicaGroup,
    Sentinels,
    ServerNotFound,
    ServerProcess,
    Standalone,
    find_binaries,
    find_binary,
    servers_of,
)
from docket.testing.servers.process import configuration
from tests.waiting import WAIT_LIMIT, eventually_blocking

VARIANTS = {"plain": (False, False), "acl": (False, True), "tls": (True, False), "tls-acl": (True, True)}


async def double(n: int) -> int:
    return 2 * n


async def works(url: str, name: str) -> bool:
    async with Docket(name, url) as docket:
        execution = await docket.add(double)(21)
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        return await execution.get_result(timeout=WAIT_LIMIT) == 42


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_serves_a_docket(kind: str, variant: str, name: str) -> None:
    tls, acl = VARIANTS[variant]
    binary = next((binary for binary in find_binaries() if binary.speaks_tls or not tls), None)
    if binary is None:
        pytest.skip("no server on this machine speaks TLS")
    with servers_of(kind, binary=binary, tls=tls, acl=acl) as group:
        assert await works(group.url, name)
        assert await works(group.database_url(7), f"{name}-7")


@pytest.mark.parametrize("binary", ["redis-6.2", "redis-7", "valkey-9"])
async def test_every_server_program_is_found_by_its_name(binary: str, name: str) -> None:
    try:
        found = find_binary(binary)
    except ServerNotFound:
        pytest.skip(f"no {binary} on this machine")
    assert found.name.startswith(binary)
    with Standalone(binary=binary) as group:
        version = group.primary.run("INFO", "server").get(f"{found.family}_version")
        assert str(version).startswith(f"{found.version[0]}.{found.version[1]}.")
        assert await works(group.url, name)


def test_a_program_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ServerNotFound, match="there is no mongodb on this machine; it has .*valkey"):
        find_binary("mongodb")
    with pytest.raises(ServerNotFound, match="is not a Redis or Valkey server"):
        find_binary(tmp_path / "nothing")
    with pytest.raises(ValueError, match="'ring' is not a kind of server: use one of standalone, replica"):
        servers_of("ring")


def test_tls_on_a_program_without_it_is_one_clear_error() -> None:
    without = next((binary for binary in find_binaries() if not binary.speaks_tls), None)
    if without is None:
        pytest.skip("every server on this machine speaks TLS")
    with (
        pytest.raises(ServerNotFound, match=f"{without.name} .* was built without TLS"),
        Standalone(binary=without, tls=True),
    ):
        pass


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess("--appendonly", "yes", "--appendfsync", "always", tcp=True) as server:
        yield server


def test_a_server_keeps_its_data_and_its_port_over_a_crash(server: ServerProcess) -> None:
    server.run("SET", "a", "1")
    port = server.port
    server.kill()
    assert not server.is_running
    server.start()
    assert server.port == port
    assert server.run("GET", "a") == b"1"


def test_a_paused_server_goes_on_and_can_be_stopped_while_it_is_paused(server: ServerProcess) -> None:
    server.pause()
    server.wake()
    assert server.run("PING")
    server.pause()
    server.stop()
    assert not server.is_running


def test_a_taken_port_is_exchanged_for_another_one() -> None:
    with ServerProcess(tcp=True) as first:
        second = ServerProcess(tcp=True)
        second.port = first.port
        with second:
            assert second.port != first.port
            assert second.run("PING")


def test_options_reach_the_configuration_whole() -> None:
    assert configuration(["--save", "", "--user", "a", "on", ">pass word", "--title", 'a "b"']) == (
        'save ""\nuser "a" "on" ">pass word"\ntitle "a \\"b\\""\n'
    )


def test_a_replica_gets_the_writes_of_its_primary() -> None:
    with ReplicaGroup() as group:
        [replica] = group.replicas
        group.primary.run("SET", "a", "1")
        assert group.primary.run("WAIT", 1, 10_000) == 1
        assert replica.run("GET", "a") == b"1"


def test_a_cluster_fails_over() -> None:
    with Cluster() as cluster:
        slot = cluster.slot("a")
        owner = cluster.owner(slot)
        owner.kill()
        eventually_blocking(lambda: cluster.owner(slot) is not owner, "another node serves the slot")
        assert len(cluster.nodes) == 6


def test_sentinels_fail_over() -> None:
    with Sentinels() as group:
        assert (len(group.data_servers), len(group.sentinels)) == (3, 3)
        assert group.current_primary() is group.primary
        group.primary.kill()
        eventually_blocking(lambda: group.current_primary() is not group.primary, "there is another primary")
        group.primary.start()
        eventually_blocking(lambda: all_follow_one(group), "the old primary follows, or leads again")


def all_follow_one(group: Sentinels) -> bool:
    """Whether one server is the primary. On a busy machine a primary may be silent for so long that
    the sentinels fail over once more, perhaps back to the first primary."""
    primary = group.current_primary()
    return not follows(primary) and all(follows(server) for server in group.data_servers if server is not primary)


def follows(server: ServerProcess) -> bool:
    try:
        return server.run("ROLE")[0] == b"slave"
    except redis.ConnectionError:
        # A server that becomes a replica closes its connections.
        return False


def processes_in(folder: Path) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def command(temporary: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "docket.testing.servers", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -9)], ids=["int", "term", "kill"]
)
async def test_the_command_prints_the_url_and_leaves_nothing_however_it_ends(
    temporary: Path, number: signal.Signals, code: int, name: str
) -> None:
    with command(temporary, "replica", "--acl") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("redis://admin:secret@127.0.0.1:")
        assert await works(url, name)
        assert processes_in(temporary)
        process.send_signal(number)
        process.communicate()
        assert process.returncode == code
    eventually_blocking(lambda: not processes_in(temporary), "all servers have ended")
    eventually_blocking(lambda: not list(temporary.iterdir()), "all files are gone")


def test_the_command_says_what_is_missing(temporary: Path) -> None:
    with command(temporary, "cluster", "--binary", "mongodb") as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.startswith("Error: there is no mongodb on this machine")


def test_a_forked_child_neither_keeps_nor_ends_the_servers_of_its_parent(server: ServerProcess) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert server.run("PING")
