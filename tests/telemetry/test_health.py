"""What the health port of a real worker process says in each state."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from docket.instrumentation import healthcheck_server
from docket.testing.servers import ServerProcess
from tests.waiting import SECONDS, eventually_blocking

PROGRAM = """
import asyncio, pathlib, sys, time
from datetime import timedelta
from docket import Docket, Worker
from docket.instrumentation import healthcheck_server

async def block(until: str) -> None:
    while not pathlib.Path(until).exists():
        time.sleep(0.01)

async def rest(seconds: float) -> None:
    await asyncio.sleep(seconds)

tasks = [block, rest]

async def main() -> None:
    await Worker.run(docket_name="health", url=sys.argv[1], tasks=["__main__:tasks"], healthcheck_port=int(sys.argv[2]))

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as server:
        yield server


@pytest.fixture
def worker(server: ServerProcess, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    port = free_port()
    process = subprocess.Popen([sys.executable, str(program), server.url, str(port)], env=os.environ)
    yield process, port
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port: int, path: str = "/health") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def fails(port: int, *reasons: str) -> bool:
    """Whether the worker says that it is not well, for one of these reasons."""
    status, text = ask(port)
    return status == 503 and any(reason in text for reason in reasons)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_health_follows_the_worker_through_every_state(
    server: ServerProcess, worker: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    url = server.url
    process, port = worker
    eventually_blocking(lambda: ask(port)[0] == 200, "the worker says that it is well")
    assert ask(port, "/")[0] == 200
    assert ask(port, "/ready")[0] == 200
    assert ask(port, "/healthz") == (200, "OK")

    schedule(url, "block", str(tmp_path / "go on"))
    eventually_blocking(lambda: fails(port, "event loop"), "the worker says that its event loop is blocked")
    (tmp_path / "go on").touch()
    eventually_blocking(lambda: ask(port)[0] == 200, "the worker says that it is well")

    server.pause()
    eventually_blocking(lambda: fails(port, "lease", "fails"), "the worker says that it has no server")
    server.wake()
    eventually_blocking(lambda: ask(port)[0] == 200, "the worker says that it is well")

    schedule(url, "rest", 3600.0)
    eventually_blocking(lambda: redis.Redis.from_url(url).hlen("health:running") == 1, "the task runs")
    process.send_signal(signal.SIGTERM)
    eventually_blocking(lambda: fails(port, "stopping"), "the worker says that it stops")
    assert ask(port, "/ready")[0] == 503
    # Once more, and it does not wait for the task.
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0


def test_a_connection_that_asks_for_nothing_is_closed() -> None:
    with healthcheck_server(host="127.0.0.1", port=0) as port:
        silent = socket.create_connection(("127.0.0.1", port or 0), timeout=60)
        asking = socket.create_connection(("127.0.0.1", port or 0), timeout=60)
        with silent, asking:
            asking.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while data := asking.recv(4096):
                answer += data
            assert answer.endswith(b"\r\n\r\nOK")
            assert silent.recv(1) == b""


def test_a_client_that_goes_away_before_its_answer_leaves_no_trace_in_the_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked, gone = threading.Event(), threading.Event()
    serving: list[threading.Thread] = []

    def health() -> None:
        serving.append(threading.current_thread())
        asked.set()
        gone.wait(60)

    with healthcheck_server(host="127.0.0.1", port=0, health=health) as port:
        client = socket.create_connection(("127.0.0.1", port or 0), timeout=60)
        # Closing resets the connection at once.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(60)
        client.close()
        gone.set()
        serving[0].join(60)

    assert not serving[0].is_alive()
    assert capfd.readouterr() == ("", "")


def schedule(url: str, name: str, argument: object) -> None:
    program = f"""
import asyncio
from docket import Docket
async def {name}(argument: object) -> None: ...
async def main() -> None:
    async with Docket(name="health", url={url!r}) as docket:
        await docket.add({name})({argument!r})
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=SECONDS)
