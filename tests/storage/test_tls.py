"""TLS on every kind of server, with docket's own connections
and with the client of `docket.redis()`, which redis-py makes.
`make test-redis-py` runs this with both ends of its range."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docket import Docket, Worker
from docket.errors import ServerUnreachable
from docket.testing.servers import Binary, ServerGroup, ServerProcess, find_binaries, make_certificates, servers_of
from tests.waiting import SECONDS, WAIT_LIMIT


@pytest.fixture(scope="module")
def binary() -> Binary:
    binary = next((binary for binary in find_binaries() if binary.speaks_tls), None)
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("no server with TLS or no openssl on this machine")
    return binary


@pytest.fixture(scope="module", params=["standalone", "cluster", "sentinel"])
def group(request: pytest.FixtureRequest, binary: Binary) -> Iterator[ServerGroup]:
    """With passwords for servers and sentinels. No port takes connections without TLS."""
    with servers_of(request.param, binary=binary, tls=True, acl=True) as group:
        yield group


async def double(n: int) -> int:
    return 2 * n


async def works(docket: Docket) -> None:
    execution = await docket.add(double)(21)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await execution.get_result(timeout=WAIT_LIMIT) == 42


async def test_every_connection_uses_tls(group: ServerGroup, name: str) -> None:
    async with Docket(name, group.url) as docket:
        await works(docket)
        async with docket.redis() as client:
            await client.set(f"{{{name}}}:mine", b"1")
            assert await client.get(f"{{{name}}}:mine") == b"1"
        threaded = docket.server.threaded_client(lambda: SECONDS, docket.keys.stream)
        assert threaded.execute_command("PING") == b"PONG"
        threaded.close()


async def test_a_certificate_of_an_unknown_authority_is_refused(group: ServerGroup, name: str) -> None:
    certificates = group.variant.certificates
    assert certificates is not None
    url = group.url.replace(f"ssl_ca_certs={certificates.authority}", "")
    with pytest.raises(ServerUnreachable, match="certificate verify failed"):
        async with Docket(name, url):
            pass


@pytest.fixture(scope="module")
def elsewhere(binary: Binary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose certificate is for another host."""
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"), "DNS:elsewhere")
    with ServerProcess(binary=binary, certificates=certificates) as server:
        yield server


async def test_a_certificate_of_another_host_is_refused(elsewhere: ServerProcess, name: str) -> None:
    with pytest.raises(ServerUnreachable, match="[Hh]ostname mismatch"):
        async with Docket(name, elsewhere.url):
            pass


@pytest.mark.parametrize("option", ["ssl_check_hostname=false", "ssl_cert_reqs=none"])
async def test_the_url_may_ask_for_less(elsewhere: ServerProcess, name: str, option: str) -> None:
    async with Docket(name, f"{elsewhere.url}&{option}") as docket:
        await works(docket)
        async with docket.redis() as client:
            assert await client.ping()


async def test_sentinels_with_a_certificate_of_another_host_are_refused(
    binary: Binary, name: str, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path, "DNS:elsewhere")
    with ServerProcess(binary=binary, certificates=certificates, sentinel=True) as sentinel:
        url = f"rediss+sentinel://localhost:{sentinel.port}/main?ssl_ca_certs={certificates.authority}"
        with pytest.raises(ServerUnreachable, match="[Hh]ostname mismatch"):
            async with Docket(name, url):
                pass
