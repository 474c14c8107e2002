"""The health and metrics ports: a stranger can neither stop the worker nor keep probes out."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from docket.instrumentation import healthcheck_server, metrics_server
from docket.instrumentation.http import MOST_CONNECTIONS
from docket.storage import scripts
from tests.waiting import SECONDS, eventually_blocking


@pytest.fixture
def port() -> Iterator[int]:
    with healthcheck_server("127.0.0.1", 0) as port:
        assert port is not None
        yield port


def ask(port: int, method: str = "GET") -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, "/")
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("Content-Length")
    finally:
        connection.close()


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_thousand_idle_connections_keep_no_probe_out(port: int) -> None:
    idle: list[socket.socket] = []
    try:
        for _ in range(300):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
        assert ask(port) == (200, b"OK", "2")
        eventually_blocking(
            lambda: sum(not is_closed(connection) for connection in idle) <= MOST_CONNECTIONS,
            "the oldest connections are closed",
        )
        assert ask(port) == (200, b"OK", "2")
    finally:
        for connection in idle:
            connection.close()


def test_slow_connections_keep_no_probe_out(port: int) -> None:
    slow = [socket.create_connection(("127.0.0.1", port), timeout=SECONDS) for _ in range(2 * MOST_CONNECTIONS)]
    try:
        for connection in slow[-MOST_CONNECTIONS:]:
            connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        assert ask(port) == (200, b"OK", "2")
    finally:
        for connection in slow:
            connection.close()


def test_a_connection_that_sends_nothing_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        assert connection.recv(1) == b""


@pytest.mark.parametrize("serve", [healthcheck_server, metrics_server])
def test_head_has_no_body(serve: type) -> None:
    with serve("127.0.0.1", 0) as port, socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"Content-Length: " in head
    assert body == b""


def test_dropped_connections_are_quiet(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for request in (b"", b"GET / HTTP/1.1\r\n", b"\xff\xfe\x00", b"GET " + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(request)
    assert ask(port) == (200, b"OK", "2")
    assert capfd.readouterr().err == ""


def test_a_worker_needs_no_file_to_run_a_script() -> None:
    """A worker loads all scripts when it starts. A
    worker without a free descriptor can run them."""
    scripts.load_all()
    before = scripts.load.cache_info().misses
    for name in ("settle", "take", "reclaim", "sweep", "cancel"):
        scripts.load(name)
    assert scripts.load.cache_info().misses == before
