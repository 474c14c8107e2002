"""`docket dead`: list, show, retry, edit and discard tasks that failed for good."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest

from docket import Docket, Logged, Worker
from docket.testing.servers import ServerProcess

from .conftest import Command


async def send(customer: Annotated[int, Logged], text: str = "hello") -> None:
    if customer != 8:
        raise LookupError(f"no mailbox of {customer} \x1b[31m")


tasks = [send]


@pytest.fixture
def url(redis_server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{redis_server.port}/7"


def on_docket(url: str, work: Callable[[Docket], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Docket("dead", url) as docket:
            docket.register(send)
            return await work(docket)

    return asyncio.run(run())


@pytest.fixture
def dead(url: str, docket_command: Command) -> Callable[..., Any]:
    """Three tasks have failed. Runs `docket dead …` on their docket."""

    async def fail(docket: Docket) -> None:
        await docket.server.client.flushdb()
        for number in range(3):
            await docket.add(send, key=f"k{number}")(number)
        await run_all(docket)

    on_docket(url, fail)
    return lambda *arguments: docket_command("dead", *arguments, "--url", url, "--docket", "dead")


async def run_all(docket: Docket) -> None:
    async with Worker(docket) as worker:
        await worker.run_until_finished()


def count(url: str) -> int:
    return on_docket(url, lambda docket: docket.dead.count())


def test_letters_are_listed_with_their_kinds(dead: Callable[..., Any]) -> None:
    shown = dead("ls")
    assert shown.exit_code == 0, shown.output
    assert "Dead letters of docket 'dead': 3 (" in shown.output
    assert "LookupError" in shown.output
    assert "test_dead.send" in shown.output
    assert shown.output.count("#") == 3
    assert "\x1b[31m" not in shown.output, "control characters are escaped"
    assert "k1" not in dead("ls", "--kinds").output
    filtered = dead("ls", "--argument", "customer=int:2", "--since", "1h", "--json")
    listed = json.loads(filtered.output)
    assert [letter["key"] for letter in listed["letters"]] == ["k2"]
    assert (listed["count"], [kind["count"] for kind in listed["kinds"]]) == (3, [3])


def test_one_letter_is_shown_with_its_traceback(dead: Callable[..., Any]) -> None:
    shown = dead("show", "k1")
    assert shown.exit_code == 0, shown.output
    assert "raise LookupError" in shown.output
    assert "failed" in shown.output
    letter = json.loads(dead("show", "k1", "--json").output)
    assert (letter["key"], letter["deaths"], letter["function"]) == ("k1", 1, "send")
    again = json.loads(dead("show", f"#{letter['id']}", "--json").output)
    assert again == letter
    missing = dead("show", "nothing")
    assert missing.exit_code == 1
    assert "no dead letter 'nothing'" in missing.output


def test_letters_are_retried(dead: Callable[..., Any], url: str) -> None:
    assert dead("retry", "k1", "--dry-run").output.strip() == "1 dead letters match"
    assert count(url) == 3
    retried = dead("retry", "k1", "k2")
    assert retried.exit_code == 0, retried.output
    assert "2 of 2 dead letters retried" in retried.output
    assert re.search(r"^Letters up to --mark \d+$", retried.stderr, re.MULTILINE)
    taken = json.loads(dead("retry", "--everything", "--json").output)
    assert (taken["retried"], taken["matched"], taken["skipped"]) == (1, 1, {})
    assert count(url) == 0


def test_a_retry_without_a_filter_is_refused(dead: Callable[..., Any], url: str) -> None:
    for command in ("retry", "discard"):
        refused = dead(command)
        assert refused.exit_code == 1
        assert "everything=True" in refused.output
        both = dead(command, "k1", "--function", "send")
        assert both.exit_code == 2
        assert "not both" in both.output
    assert count(url) == 3


def test_letters_are_discarded(dead: Callable[..., Any], url: str) -> None:
    assert "1 of 3 dead letters discarded" in dead("discard", "--error", "LookupError", "--most", "1").output
    assert "2 of 2 dead letters discarded" in dead("discard", "--text", "mailbox").output
    assert count(url) == 0


def test_an_edited_letter_runs_again(dead: Callable[..., Any], url: str) -> None:
    path = f"{__name__}:tasks"
    edited = dead("edit", "k1", "customer=8", '"text"="x"', "--tasks", path)
    assert edited.exit_code == 2
    assert "write NAME=JSON" in edited.output
    assert "is not JSON" in dead("edit", "k1", "text=hello", "--tasks", path).output
    unknown = dead("edit", "k1", "costumer=8", "--tasks", path)
    assert unknown.exit_code == 1
    assert "has no parameter 'costumer'; it has customer, text" in unknown.output
    assert "not registered here" in dead("edit", "k1", "customer=8").output
    edited = dead("edit", "k1", "customer=8", "--tasks", path)
    assert edited.exit_code == 0, edited.output
    assert "Edited dead letter #" in edited.output
    assert dead("retry", "k1").exit_code == 0
    on_docket(url, run_all)
    assert count(url) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--since", "yesterday"), "neither a time"),
        (("--argument", "customer"), "write NAME=VALUE"),
        (("--argument", "customer=int:x"), "not a valid int"),
    ],
)
def test_options_that_cannot_be_read_are_one_clear_line(
    dead: Callable[..., Any], options: tuple[str, ...], words: str
) -> None:
    refused = dead("ls", *options)
    assert refused.exit_code == 2
    assert words in refused.output
    assert refused.output.count("\n") == 1


def test_a_filtered_list_says_how_many_letters_match(dead: Callable[..., Any]) -> None:
    assert "1 of them match" in dead("ls", "--key-prefix", "k1").stdout
    listed = json.loads(dead("ls", "--key-prefix", "k1", "--json").stdout)
    assert (listed["count"], listed["matched"], len(listed["letters"])) == (3, 1, 1)


def test_discard_asks_at_a_terminal_and_nowhere_else(
    dead: Callable[..., Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docket.cli.dead.is_at_terminal", lambda: True)
    refused = dead("discard", "--everything")
    assert refused.exit_code == 1
    assert "Delete 3 dead letters of docket 'dead'?" in refused.output
    assert count(url) == 3
    assert dead("discard", "k0", "--yes").exit_code == 0
    assert count(url) == 2
    monkeypatch.setattr("docket.cli.dead.is_at_terminal", lambda: False)
    assert dead("discard", "--everything").exit_code == 0
    assert count(url) == 0
