"""`docket history`: a table for people, JSON for programs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from .conftest import Command
from .test_stats import work

pytestmark = pytest.mark.timeout(600)


def runs(docket_command: Command, url: str, *options: str) -> list[dict[str, Any]]:
    result = docket_command("history", *options, "--url", url, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["runs"]


def test_a_line_for_each_run(any_url: str, docket_command: Command) -> None:
    asyncio.run(work(any_url))
    result = docket_command("history", "--url", any_url)
    assert result.exit_code == 0, result.output
    title, head, *lines = result.stdout.splitlines()
    assert title == "docket 'docket'"
    assert head.split() == ["ENDED", "FUNCTION", "KEY", "ENDING", "ATTEMPT", "RAN", "WAITED", "WORKER", "ERROR"]
    (retried,) = [line for line in lines if " retried " in line]
    assert "fail_once" in retried
    assert retried.endswith("ValueError: not yet")


def test_filters_and_json(url: str, docket_command: Command) -> None:
    asyncio.run(work(url))
    found = runs(docket_command, url)
    assert {run["function"] for run in found} == {"plain", "fail_once"}
    assert {run["ending"] for run in found} == {"succeeded", "retried"}
    assert list(found[0]) == [
        *("id", "function", "key", "ending", "attempt", "worker", "due_at", "started_at", "ended_at"),
        *("run_seconds", "waiting_seconds", "error", "left_out"),
    ]
    (failure,) = runs(docket_command, url, "--failures")
    assert (failure["ending"], failure["attempt"], failure["error"]) == ("retried", 1, "ValueError: not yet")
    assert runs(docket_command, url, "--ending", "retried", "--since", "1h") == [failure]
    assert {run["attempt"] for run in runs(docket_command, url, "--key", failure["key"])} == {1, 2}
    assert runs(docket_command, url, "plain", "--ending", "failed") == []
    assert runs(docket_command, url, "--limit", "1") == found[:1]
    assert runs(docket_command, url, "--before", found[0]["id"]) == found[1:]


@pytest.mark.parametrize(
    "options", [("--failures", "--ending", "lost"), ("--before", "first"), ("--limit", "0"), ("--ending", "well")]
)
def test_filters_that_make_no_sense_are_refused(url: str, docket_command: Command, options: tuple[str, ...]) -> None:
    result = docket_command("history", *options, "--url", url)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
