"""Following one task, in a pipe and on a terminal."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator

import pytest

from docket import Docket

from .conftest import Command, Start
from .processes import Terminal

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)


def add(url: str, function: str, key: str, *arguments: object) -> None:
    async def add_it() -> None:
        async with Docket("docket", url) as docket:

            async def print_pages(pages: int) -> None: ...

            async def pack(seconds: float) -> None: ...

            docket.register(print_pages)
            docket.register(pack)
            await docket.add(function, key=key)(*arguments)

    asyncio.run(add_it())


@pytest.fixture
def terminal(url: str) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


def test_a_task_is_followed_from_queue_to_end(any_url: str, shop: str, start: Start) -> None:
    add(any_url, "print_pages", "pages", 3)
    watching = start("watch", "pages", "--url", any_url)
    watching.says("queued")
    assert watching.lines[0] == "Watching task 'pages' (print_pages) on docket 'docket'"
    worker = start("worker", "--url", any_url, "--tasks", shop, "--name", "Ada")
    assert watching.ends() == 0
    assert "running on Ada" in watching.output
    assert "progress 3/3 page 3" in watching.output
    assert watching.lines[-1].split(" ", 1)[1].startswith("✓ completed on Ada after")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_a_task_that_has_ended_is_shown_at_once(url: str, shop: str, start: Start, docket_command: Command) -> None:
    add(url, "print_pages", "pages", 2)
    add(url, "fail", "failing", "no\nway")
    assert start("worker", "--url", url, "--tasks", shop, "--until-finished").ends() == 0
    done = docket_command("watch", "pages", "--url", url, "--json")
    assert done.exit_code == 0
    state, progress = (json.loads(line) for line in done.stdout.splitlines())
    assert (state["state"], progress["current"], progress["message"]) == ("completed", 2, "page 2")
    failed = docket_command("watch", "failing", "--url", url)
    assert failed.exit_code == 1
    assert "✗ failed" in failed.stdout
    assert "no\\nway" in failed.stdout


def test_a_cancelled_task_is_no_success(url: str, docket_command: Command) -> None:
    docket_command("tasks", "trace", "--url", url, "--key", "going", "--delay", "1h")
    docket_command("clear", "--url", url)
    result = docket_command("watch", "going", "--url", url)
    assert result.exit_code == 1
    assert "✗ cancelled" in result.stdout


def test_a_key_that_nobody_knows_is_one_line(url: str, docket_command: Command) -> None:
    result = docket_command("watch", "nobody", "--url", url)
    assert result.exit_code == 1
    assert result.stderr.startswith("docket: docket 'docket' has no task 'nobody'")


def test_patience_has_an_end(url: str, docket_command: Command) -> None:
    docket_command("tasks", "trace", "--url", url, "--key", "late", "--delay", "1h")
    result = docket_command("watch", "late", "--url", url, "--timeout", "200ms")
    assert result.exit_code == 1
    assert result.stderr == "docket: task 'late' did not end within the timeout\n"


def test_on_a_terminal_there_is_a_bar(url: str, shop: str, start: Start, terminal: list[Terminal]) -> None:
    add(url, "print_pages", "pages", 4)
    terminal.append(Terminal("watch", "pages", "--url", url))
    terminal[0].shows("queued")
    start("worker", "--url", url, "--tasks", shop, "--until-finished")
    assert terminal[0].ends() == 0
    terminal[0].shows("100%")
    terminal[0].shows("completed on")


def test_ctrl_c_ends_watching_and_leaves_the_terminal_as_it_was(
    url: str, docket_command: Command, terminal: list[Terminal]
) -> None:
    docket_command("tasks", "trace", "--url", url, "--key", "late", "--delay", "1h")
    watching = Terminal("watch", "late", "--url", url)
    terminal.append(watching)
    watching.shows("scheduled")
    watching.types(b"\x03")
    assert watching.ends() == 130
    assert "Traceback" not in watching.output
    assert watching.output.rstrip().endswith("\x1b[?25h"), "the cursor is visible again"
