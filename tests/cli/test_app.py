"""One place for the settings of a docket: `--app module:docket`,
beside an option and a variable for each."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from docket import Docket

from .conftest import Command, Start

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)

APP = """
from datetime import timedelta
from docket import Docket

async def ship(order: str) -> str:
    return order

docket = Docket("shop", {url!r}, execution_ttl=timedelta(seconds=20), max_losses=7)
docket.register(ship)
opened, number = docket, 5

def make() -> Docket:
    return docket

def fails() -> Docket:
    return 1 / 0

async def make_later() -> Docket:
    return docket
"""


@pytest.fixture
def app(folder: Path, url: str) -> Path:
    path = folder / "application.py"
    path.write_text(APP.format(url=url))
    return path


def remembered_for(url: str, key: str) -> timedelta:
    async def ask() -> int:
        async with Redis.from_url(url) as client:
            return await client.pttl(f"shop:runs:={key}")

    return timedelta(milliseconds=asyncio.run(ask()))


async def ship(order: str) -> str:
    raise AssertionError("the worker has another")


def add(url: str, key: str) -> None:
    async def add_it() -> None:
        async with Docket("shop", url, execution_ttl=timedelta(seconds=20), max_losses=7) as docket:
            await docket.add(ship, key=key)("tea")

    asyncio.run(add_it())


@pytest.mark.parametrize("name", ["docket", "make"])
def test_a_worker_has_the_settings_and_the_tasks_of_the_application(
    name: str, app: Path, url: str, start: Start
) -> None:
    add(url, "order")
    worker = start("worker", "--app", f"application:{name}", "--until-finished")
    assert worker.ends() == 0, worker.output
    assert "ship(" in worker.output
    assert "only docket's built-in tasks" not in worker.output
    assert timedelta(0) < remembered_for(url, "order") <= timedelta(seconds=20)


def test_an_option_goes_before_the_application(app: Path, url: str, start: Start) -> None:
    add(url, "order")
    worker = start("worker", "--app", "application:docket", "--until-finished", "--execution-ttl", "2h")
    assert worker.ends() == 0, worker.output
    assert remembered_for(url, "order") > timedelta(hours=1)


def test_settings_come_from_the_environment_too_and_reach_every_process(app: Path, url: str, start: Start) -> None:
    add(url, "order")
    worker = start(
        "worker", "--processes", "2", "--until-finished", DOCKET_APP="application:make", DOCKET_EXECUTION_TTL="2h"
    )
    assert worker.ends() == 0, worker.output
    assert remembered_for(url, "order") > timedelta(hours=1)


def test_a_worker_without_an_application_takes_the_settings_as_options(url: str, folder: Path, start: Start) -> None:
    (folder / "tasks.py").write_text("async def ship(order): return order\ntasks = [ship]\n")
    add(url, "order")
    worker = start(
        "worker",
        "--docket",
        "shop",
        "--url",
        url,
        "--tasks",
        "tasks:tasks",
        "--execution-ttl",
        "2h",
        "--until-finished",
    )
    assert worker.ends() == 0, worker.output
    assert remembered_for(url, "order") > timedelta(hours=1)


def test_a_worker_says_that_it_works_on_another_docket_than_the_application(app: Path, url: str, start: Start) -> None:
    worker = start("worker", "--app", "application:docket", "--until-finished", DOCKET_NAME="elsewhere")
    assert worker.ends() == 0, worker.output
    assert "using docket 'elsewhere' instead of 'shop' from application:docket" in worker.output


def test_other_commands_find_the_docket_of_the_application(
    app: Path, url: str, folder: Path, docket_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    place = ("--app", "application:docket")
    assert "docket 'shop'" in docket_command("tasks", "trace", *place, "--key", "hello", "--delay", "1h").stdout
    assert json.loads(docket_command("snapshot", *place, "--json").stdout)["tasks"][0]["key"] == "hello"
    assert docket_command("watch", "hello", *place, "--timeout", "100ms").exit_code == 1
    assert "scheduled 1" in docket_command("top", *place, "--count", "1").stdout
    assert "on docket 'shop'" in docket_command("strike", "ship", *place).stdout
    assert "on docket 'shop'" in docket_command("restore", "ship", *place).stdout
    assert "docket 'shop'" in docket_command("workers", "ls", *place).stdout
    assert "docket 'shop'" in docket_command("workers", "for-task", "ship", *place).stdout
    assert "1 task from docket 'shop'" in docket_command("clear", *place).stdout


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("application", "write module:name"),
        ("nowhere:docket", "there is no module 'nowhere'"),
        ("application:dockets", "module 'application' has no 'dockets'; did you mean 'docket'?"),
        ("application:number", "name a Docket that is not open, or a function that returns one"),
        ("application:make_later", "name a Docket that is not open, or a function that returns one"),
        ("application:fails", "it raises ZeroDivisionError: division by zero"),
    ],
)
def test_an_application_that_is_none_is_one_line(path: str, words: str, app: Path, start: Start) -> None:
    command = start("snapshot", "--app", path)
    assert command.ends() == 2
    assert command.output.count("\n") == 1, command.output
    assert words in command.output


def test_an_application_in_memory_cannot_be_shared_by_processes(folder: Path, start: Start) -> None:
    (folder / "application.py").write_text(APP.format(url="memory://shop"))
    worker = start("worker", "--app", "application:docket", "--processes", "2")
    assert worker.ends() == 2, worker.output
    assert worker.output.count("\n") == 1, worker.output
    assert "each process has its own memory://" in worker.output


def test_tasks_ls_shows_the_function_behind_each_name(app: Path, folder: Path, start: Start) -> None:
    (folder / "more.py").write_text(
        "import functools\n"
        "def twice(function):\n"
        "    @functools.wraps(function)\n"
        "    async def inner(*args): return await function(*args)\n"
        "    return inner\n"
        "@twice\n"
        "async def pack(order: str) -> None: ...\n"
        "class Tasks:\n"
        "    async def count(self) -> None: ...\n"
        "tasks = [pack, Tasks().count]\n"
    )
    command = start("tasks", "ls", "--app", "application:docket", "--tasks", "more:tasks")
    assert command.ends() == 0
    rows = [line.split() for line in command.lines]
    assert ["ship", "application:ship", "application.py:5"] in rows
    assert ["pack", "more:pack", "more.py:6"] in rows
    assert ["count", "more:Tasks.count", "more.py:9"] in rows
    assert rows[1][:2] == ["trace", "docket.tasks:trace"]
    listed = start("tasks", "ls", "--app", "application:docket", "--json")
    assert listed.ends() == 0
    assert {"name": "ship", "function": "application:ship", "source": "application.py:5"} in json.loads(listed.output)


def test_a_worker_of_an_application_stops_when_it_is_told_to(app: Path, start: Start) -> None:
    worker = start("worker", "--app", "application:docket", "--name", "Ada")
    worker.says("'Ada'")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0, worker.output


def test_a_task_of_the_application_and_another_function_of_its_name_are_one_line(
    app: Path, folder: Path, start: Start
) -> None:
    (folder / "others.py").write_text("async def ship() -> None: ...\n\n\ntasks = [ship]\n")
    process = start("worker", "--app", "application:docket", "--tasks", "others:tasks")
    assert process.ends() == 2, process.output
    (line,) = process.output.strip().splitlines()
    assert "two functions have the name 'ship'" in line
    assert "application.ship" in line
    assert "others.ship" in line
