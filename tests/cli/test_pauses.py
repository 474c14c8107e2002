"""`docket pause`, `resume` and `held`, on both kinds of server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import redis

from docket import Docket, Worker

from .conftest import Command
from .test_operators import add_later, add_now


def hold_all(url: str) -> None:
    """A worker takes all tasks that are ready. The test has paused them."""

    async def work() -> None:
        async with Docket("docket", url) as docket, Worker(docket) as worker:
            await worker.run_until_finished()

    asyncio.run(work())


def listed(command: Command, url: str) -> list[dict[str, Any]]:
    result = command("held", "--url", url, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_tasks_are_held_and_go_on(any_url: str, docket_command: Command) -> None:
    where = ("--url", any_url)
    add_now(any_url, 3)
    assert "Nothing is paused" in docket_command("held", *where).stdout
    assert docket_command("pause", "fail", *where).stdout == "Paused: fail(...) on docket 'docket'\n"
    hold_all(any_url)
    assert (
        docket_command("pause", "fail", *where).stdout == "Already paused: fail(...) on docket 'docket', 3 tasks held\n"
    )
    table = docket_command("held", *where).stdout
    assert "fail(...)" in table
    (pause,) = listed(docket_command, any_url)
    assert (pause["function"], pause["held"], pause["resuming"], pause["unreadable"]) == ("fail", 3, False, None)
    resumed = docket_command("resume", "fail", *where)
    assert resumed.stdout == "Resumed: fail(...) on docket 'docket': 3 tasks go on\n"
    assert listed(docket_command, any_url) == []


def test_resuming_what_is_not_paused_says_what_is(url: str, docket_command: Command) -> None:
    docket_command("pause", "fail", "message", "==", "x", "--url", url)
    result = docket_command("resume", "fail", "--url", url)
    assert result.exit_code == 1
    assert result.stderr == "docket: fail(...) is not paused; paused are: fail(message == 'x')\n"
    assert len(listed(docket_command, url)) == 1


def test_pauses_are_resumed_by_id_and_all_at_once(url: str, docket_command: Command) -> None:
    for rule in (["a"], ["b", "x", "between", "int:1..5"], ["*"], ["*", "x", "==", "y"]):
        assert docket_command("pause", *rule, "--url", url).exit_code == 0
    pauses = listed(docket_command, url)
    assert [pause["pause"] for pause in pauses] == ["a(...)", "b(x between (1, 5))", "*(...)", "*(x == 'y')"]
    assert docket_command("resume", "--id", pauses[1]["id"], "--url", url).stdout.startswith("Resumed: b(x between")
    assert docket_command("resume", "--id", "nothing", "--url", url).exit_code == 1
    left = docket_command("resume", "--all", "--url", url, "--json")
    assert json.loads(left.stdout)["resumed"] == [
        {"pause": name, "held": 0} for name in ("a(...)", "*(...)", "*(x == 'y')")
    ]
    assert "Nothing is paused" in docket_command("resume", "--all", "--url", url).stdout


def test_a_rule_that_cannot_be_read_is_listed_and_resumed(url: str, docket_command: Command) -> None:
    redis.Redis.from_url(url).hset("docket:pauses", "0" * 40, b"p1 \xff")
    (pause,) = listed(docket_command, url)
    assert pause["unreadable"]
    assert "cannot be read" in docket_command("held", "--url", url).stdout
    assert docket_command("resume", "--id", "0" * 40, "--url", url).exit_code == 0
    assert listed(docket_command, url) == []


def test_wrong_usage_changes_nothing(url: str, docket_command: Command) -> None:
    for arguments in (
        ["pause"],
        ["pause", "f", "x"],
        ["pause", "f", "x", "==", "int:five"],
        ["pause", "f", "x", "between", "5"],
        ["resume"],
        ["resume", "f", "--all"],
        ["resume", "--all", "--id", "x"],
    ):
        result = docket_command(*arguments, "--url", url)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), (arguments, result.output)
    assert listed(docket_command, url) == []


def test_a_dry_run_counts_and_changes_nothing(url: str, docket_command: Command) -> None:
    add_now(url, 2)
    add_later(url, 3, function="fail")
    add_later(url, 4)
    for command in ("pause", "strike"):
        told = docket_command(command, "fail", "--dry-run", "--url", url)
        assert told.exit_code == 0, told.output
        assert "fail(...) on docket 'docket' matches 5 waiting tasks (2 queued, 3 scheduled); 0 running" in told.stdout
        counted = json.loads(docket_command(command, "fail", "--dry-run", "--json", "--url", url).stdout)
        assert (counted["unknown"], counted["queued"], counted["scheduled"], counted["running"]) == (0, 2, 3, 0)
        logged = docket_command(command, "fail", "message", "==", "x", "--dry-run", "--url", url).stdout
        assert "matches 2 waiting tasks (2 queued, 0 scheduled)" in logged
        assert "more may match" not in logged
        anywhere = docket_command(command, "*", "message", "==", "1", "--dry-run", "--json", "--url", url).stdout
        assert (json.loads(anywhere)["scheduled"], json.loads(anywhere)["unknown"]) == (7, 0)
        unknown = docket_command(command, "fail", "message", ">", "x", "--dry-run", "--url", url).stdout
        assert "matches 0 waiting tasks" in unknown
        assert "5 more may match: only workers read arguments" in unknown
        none = docket_command(command, "nobody", "--dry-run", "--url", url).stdout
        assert "matches 0 waiting tasks" in none
    everything = json.loads(docket_command("pause", "*", "--dry-run", "--json", "--url", url).stdout)
    assert {name: count["scheduled"] for name, count in everything["functions"].items()} == {"fail": 3, "trace": 4}
    assert listed(docket_command, url) == []
    assert "none" in docket_command("strikes", "ls", "--url", url).stdout


def test_snapshots_and_counts_show_held_tasks(url: str, docket_command: Command) -> None:
    add_now(url, 2)
    docket_command("pause", "*", "--url", url)
    hold_all(url)
    seen = json.loads(docket_command("snapshot", "--url", url, "--json").stdout)
    assert (seen["counts"]["held"], seen["counts"]["queued"]) == (2, 2)
    assert [pause["held"] for pause in seen["pauses"]] == [2]
    assert [task["held"] for task in seen["tasks"]] == [True, True]
    text = docket_command("snapshot", "--url", url).stdout
    assert "2 held" in text
    assert "*(...)" in text
