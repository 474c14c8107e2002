"""The live view, in a pipe and on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from docket import Docket, Worker
from docket.cli.top_screen import sparkline
from docket.inspection.live import Observer
from docket.storage.keys import Keys
from docket.storage.permissions import AclRole, channel_rules, rules
from docket.testing.servers import ServerProcess
from tests.waiting import eventually, eventually_blocking, within

from .conftest import Command, Start
from .processes import Terminal

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


def test_in_a_pipe_there_is_a_line_for_each_look(any_url: str, docket_command: Command) -> None:
    docket_command("tasks", "trace", "--url", any_url, "--delay", "1h")
    result = docket_command("top", "--url", any_url, "--count", "3", "--interval", "50ms")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 3
    assert all("running 0  ready 0  limited 0  scheduled 1" in line for line in result.stdout.splitlines())


def test_what_needs_an_operator_is_on_the_line(url: str, docket_command: Command) -> None:
    async def fail() -> None:
        async with Docket("docket", url) as docket:
            await docket.add("fail", key="f")("x")
            async with Worker(docket) as worker:
                await worker.run_until_finished()

    asyncio.run(fail())
    line = docket_command("top", "--url", url, "--count", "1").stdout
    assert "  dead 1" in line
    assert "held" not in line


def test_for_programs_each_look_is_an_object(url: str, docket_command: Command) -> None:
    result = docket_command("top", "--url", url, "--count", "2", "--interval", "50ms", "--json")
    looks = [json.loads(line) for line in result.stdout.splitlines()]
    assert [look["ready"] for look in looks] == [0, 0]
    assert looks[0]["trouble"] is None


def test_a_user_who_may_not_listen_is_told_so_instead_of_rates_of_zero(
    redis_server: ServerProcess, docket_command: Command
) -> None:
    words = rules(AclRole.OBSERVER, Keys("docket")).split()
    tap = channel_rules(Keys("docket")).split()[1]
    redis_server.run("ACL", "SETUSER", "deaf", "reset", "on", ">s", *(word for word in words if word != tap))
    place = ("--url", f"redis://deaf:s@127.0.0.1:{redis_server.port}/0", "--count", "1")
    line = docket_command("top", *place).stdout
    assert "running 0" in line
    assert "no rates: " in line
    assert (
        f"the user 'deaf' may not use the channels of the docket; its ACL rules lack &docket/0/6:docket/* {tap}" in line
    )
    assert "0/s" not in line
    facts = json.loads(docket_command("top", *place, "--json").stdout)
    assert (facts["done_rate"], facts["failed_rate"], facts["added_rate"]) == (None, None, None)
    assert tap in facts["refused"]


def test_the_rules_of_a_docket_are_printed_without_a_server(docket_command: Command) -> None:
    result = docket_command("acl", "--docket", "shop", "--url", "redis+cluster://nowhere:1", "--role", "observer")
    assert result.exit_code == 0
    assert result.stdout == f"user observer on >PASSWORD {rules(AclRole.OBSERVER, Keys('shop', cluster=True))}\n"


@pytest.mark.parametrize("keys", [b"q", b"\x1b", b"\x03"], ids=["q", "escape", "ctrl-c"])
def test_q_quits_and_leaves_the_terminal_as_it_was(keys: bytes, url: str, terminals: list[Terminal]) -> None:
    top = Terminal("top", "--url", url)
    terminals.append(top)
    top.shows("q: quit")
    top.shows("0 running")
    top.types(keys)
    assert top.ends() == 0
    assert top.modes[3] == top.before[3], "lines are edited and echoed again"
    assert "\x1b[?1049l" in top.output, "the screen is back"
    assert "Traceback" not in top.output


def test_being_told_to_stop_leaves_the_terminal_as_it_was(url: str, terminals: list[Terminal]) -> None:
    top = Terminal("top", "--url", url)
    terminals.append(top)
    top.shows("q: quit")
    top.send(signal.SIGTERM)
    assert top.ends() == 0
    assert top.modes[3] == top.before[3]


def test_a_small_terminal_is_no_trouble(url: str, terminals: list[Terminal]) -> None:
    top = Terminal("top", "--url", url, rows=8, columns=40)
    terminals.append(top)
    top.shows("0 running")
    top.types(b"q")
    assert top.ends() == 0


def test_an_engine_that_is_killed_is_started_again(folder: Path, start: Start, docket_command: Command) -> None:
    url = f"embedded://{folder}/engine"
    docket_command("tasks", "trace", "--url", url, "--delay", "1h")
    top = start("top", "--url", url, "--interval", "100ms")
    top.says("scheduled 1")
    os.killpg(int((folder / "engine" / "server.group").read_text()), signal.SIGKILL)
    top.says("no answer")
    eventually_blocking(
        lambda: "scheduled 1" in top.output.rpartition("no answer")[2], "the engine is back, with its data"
    )
    top.send(signal.SIGINT)
    assert top.ends() == 0


async def test_an_observer_sees_rates_running_tasks_progress_and_failures() -> None:
    async with Docket("hostile*[a-z]?\\name", "memory://observed") as docket:

        async def slow(release_key: str) -> None:
            started.set()
            await released.wait()

        started, released = asyncio.Event(), asyncio.Event()
        observer = Observer(docket)
        async with observer.listening(), Worker(docket, name="Ada") as worker:
            await observer.refresh()
            await docket.add("fail", key="failing")("no way")
            await docket.add("trace")("x")
            running = await docket.add(slow, key="slow")("x")
            working = asyncio.create_task(worker.run_forever())
            await within(started.wait())
            await eventually(lambda: observer.state.totals.ended >= 2, "two tasks have ended")
            await observer.refresh()
            state = observer.state
            assert [(task.key, task.function, task.worker) for task in state.running] == [("slow", "slow", "Ada")]
            assert (state.totals.completed, state.totals.failed) == (1, 1)
            assert [(f.key, f.function) for f in state.failures] == [("failing", "fail")]
            assert "no way" in state.failures[0].error
            assert state.rates.ended > 0
            assert state.rates.added > 0
            assert [w.name for w in state.workers] == ["Ada"]
            released.set()
            await running.get_result()
            working.cancel()
            await working


async def test_an_observer_does_not_hear_other_dockets() -> None:
    async with Docket("a*", "memory://ears") as one, Docket("ab", "memory://ears") as other:
        observer = Observer(one)
        async with observer.listening(), Worker(other) as worker:
            await other.add("trace")("x")
            await worker.run_until_finished()
            async with Worker(one) as own:
                await one.add("trace")("x")
                await own.run_until_finished()
            await eventually(lambda: observer.state.totals.ended >= 1, "a task has ended")
            assert observer.state.totals.started == 1


def test_a_sparkline_shows_little_as_little_and_nothing_as_nothing() -> None:
    assert sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert sparkline([]) == sparkline([0, 0]) == ""
