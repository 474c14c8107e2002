"""`docket audit`: a table for people, JSON for programs; commands are in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docket.ledger.audit import process_actor

from .conftest import Command


def entries(docket_command: Command, url: str, *options: str) -> list[dict[str, Any]]:
    result = docket_command("audit", *options, "--url", url, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["entries"]


def test_commands_that_change_something_are_written_down(any_url: str, docket_command: Command) -> None:
    commands = (
        *(("add", "trace", '"x"', "--key", "one", "--in", "1h"), ("pause", "trace"), ("resume", "trace")),
        *(("strike", "fail"), ("restore", "fail"), ("cancel", "one"), ("clear", "--yes"), ("import",)),
        ("dead", "discard", "--everything", "--yes"),
        ("tasks", "trace", "hello", "--delay", "1h", "--key", "two"),
    )
    for command in commands:
        result = docket_command(*command, "--url", any_url)
        assert result.exit_code == 0, result.output
    # Commands that only look leave no entry.
    docket_command("snapshot", "--url", any_url)

    found = entries(docket_command, any_url)

    assert {(entry["who"], entry["via"]) for entry in found} == {(process_actor().who, "cli")}
    assert [entry["action"] for entry in reversed(found)] == [
        *("add", "pause", "resume", "strike", "restore", "cancel", "clear", "import", "dead.discard", "add"),
    ]
    added = found[-1]
    assert (added["about"], added["count"], added["outcome"]) == ("trace one", 1, "done")


def test_an_add_that_added_nothing_says_so(url: str, docket_command: Command) -> None:
    for _ in range(2):
        docket_command("add", "trace", '"x"', "--key", "one", "--in", "1h", "--url", url)
    again, first = entries(docket_command, url)
    assert (first["count"], first["outcome"]) == (1, "done")
    assert (again["count"], again["outcome"]) == (0, "already scheduled")


def test_a_table_filters_and_pages(url: str, docket_command: Command) -> None:
    for function in ("trace", "fail", "sleep"):
        docket_command("pause", function, "--url", url)
    docket_command("resume", "trace", "--url", url)

    result = docket_command("audit", "--url", url)
    title, head, *lines = result.stdout.splitlines()
    assert title == "docket 'docket'"
    assert head.split() == ["WHEN", "WHO", "VIA", "ACTION", "ABOUT", "NUMBER", "OUTCOME"]
    assert [line.split()[4] for line in lines] == ["resume", "pause", "pause", "pause"]

    assert [entry["action"] for entry in entries(docket_command, url, "--action", "resume")] == ["resume"]
    assert len(entries(docket_command, url, "--who", process_actor().who)) == 4
    assert entries(docket_command, url, "--who", "nobody") == []
    page = json.loads(docket_command("audit", "--url", url, "--limit", "3", "--json").stdout)
    assert (len(page["entries"]), page["total"]) == (3, 4)
    (last,) = entries(docket_command, url, "--after", page["cursor"])
    assert "trace" in last["about"]
    assert f"--after {page['cursor']}" in docket_command("audit", "--url", url, "--limit", "3").stdout


@pytest.mark.parametrize("options", [("--after", "x"), ("--limit", "0")])
def test_options_that_make_no_sense_are_refused(url: str, docket_command: Command, options: tuple[str, ...]) -> None:
    result = docket_command("audit", *options, "--url", url)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
