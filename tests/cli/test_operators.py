"""Commands that look at a docket and steer it, on both kinds of server."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from docket import Docket, Worker
from tests.waiting import eventually

from .conftest import Command


def add_later(url: str, count: int, function: str = "trace", name: str = "docket") -> None:
    async def add() -> None:
        async with Docket(name, url) as docket:
            soon = datetime.now(UTC) + timedelta(hours=1)
            call = docket.call
            await docket.add_many(
                call(function, soon + timedelta(seconds=i), f"{function}-{i}")("1") for i in range(count)
            )

    asyncio.run(add())


def add_now(url: str, count: int) -> None:
    async def add() -> None:
        async with Docket("docket", url) as docket:
            await docket.add_many(docket.call("fail", key=f"now-{i}")("x") for i in range(count))

    asyncio.run(add())


def snapshot(command: Command, url: str, *arguments: str) -> dict[str, Any]:
    result = command("snapshot", "--url", url, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_task_is_added_seen_and_cleared(any_url: str, docket_command: Command) -> None:
    added = docket_command("tasks", "trace", "hello", "--url", any_url, "--delay", "1h", "--key", "my-key")
    assert added.stdout == "Added trace task 'my-key' to docket 'docket'\n"
    again = docket_command("tasks", "trace", "hello", "--url", any_url, "--delay", "1h", "--key", "my-key")
    assert "already has a task 'my-key'" in again.stdout
    seen = docket_command("snapshot", "--url", any_url)
    assert "0 running, 0 queued, 1 scheduled, 0 workers" in seen.stdout
    assert "my-key" in seen.stdout
    cleared = docket_command("clear", "--url", any_url)
    assert cleared.stdout == "Removed 1 task from docket 'docket'\n"
    assert snapshot(docket_command, any_url)["counts"]["scheduled"] == 0


def test_why_a_task_does_not_run(any_url: str, docket_command: Command) -> None:
    add_later(any_url, 1)
    told = docket_command("why", "trace-0", "--url", any_url)
    assert told.exit_code == 0
    first, second = told.stdout.splitlines()
    assert first.startswith("The task is not due yet: it is due in ")
    assert second == "Also: No worker of this docket is alive."
    reason = json.loads(docket_command("why", "trace-0", "--url", any_url, "--json").stdout)
    assert (reason["code"], reason["state"], reason["function"]) == ("not_due", "scheduled", "trace")
    assert [other["code"] for other in reason["also"]] == ["no_worker"]
    unknown = docket_command("why", "nothing", "--url", any_url)
    assert (unknown.exit_code, "has no task 'nothing'" in unknown.stdout) == (0, True)


def test_a_strike_blocks_until_it_is_lifted(any_url: str, docket_command: Command) -> None:
    where = ("--url", any_url)
    assert docket_command("strike", "trace", *where).stdout == "Struck: trace(...) on docket 'docket'\n"
    assert "Nothing was added" in docket_command("tasks", "trace", *where).stdout
    assert "Struck: trace(...)" in docket_command("snapshot", *where).stdout
    assert "Already struck" in docket_command("strike", "trace", *where).stdout
    assert docket_command("restore", "trace", *where).stdout == "Restored: trace(...) on docket 'docket'\n"
    assert "No such strike" in docket_command("restore", "trace", *where).stdout
    assert "Added trace task" in docket_command("tasks", "trace", *where).stdout


@pytest.mark.parametrize(
    ("strike", "argument", "blocked"),
    [
        (["trace", "message", "==", "hello"], "hello", True),
        (["trace", "message", "==", "hello"], "other", False),
        (["*", "message", "==", "hello"], "hello", True),
        (["trace", "message", "between", "a..f"], "c", True),
        (["trace", "message", "between", "a..f"], "x", False),
        (["trace", "message", "!=", "int:5"], "hello", True),
        (["fail", "message", "==", "hello"], "hello", False),
    ],
)
def test_a_strike_on_an_argument_blocks_what_it_matches(
    strike: list[str], argument: str, blocked: bool, url: str, docket_command: Command
) -> None:
    assert docket_command("strike", *strike, "--url", url).exit_code == 0
    added = docket_command("tasks", "trace", argument, "--url", url, "--json")
    assert (json.loads(added.stdout)["disposition"] == "struck") is blocked


def test_numbers_in_strikes_are_compared_as_numbers(url: str, docket_command: Command) -> None:
    docket_command("strike", "sleep", "seconds", ">", "float:10", "--url", url)
    assert "Nothing was added" in docket_command("tasks", "sleep", "11", "--url", url).stdout
    assert "Added sleep" in docket_command("tasks", "sleep", "9", "--url", url).stdout


def test_text_that_looks_like_a_number_is_pointed_out(url: str, docket_command: Command) -> None:
    result = docket_command("strike", "sleep", "seconds", "==", "5", "--url", url)
    assert result.exit_code == 0
    assert "write int:5" in result.stderr
    assert docket_command("strike", "sleep", "seconds", "==", "int:5", "--url", url).stderr == ""


def test_snapshots_are_filtered(url: str, docket_command: Command) -> None:
    add_later(url, 3)
    add_later(url, 2, "sleep")
    add_now(url, 2)
    everything = snapshot(docket_command, url)
    assert [task["state"] for task in everything["tasks"]] == ["queued"] * 2 + ["scheduled"] * 5
    assert everything["counts"] == {
        "running": 0, "queued": 2, "scheduled": 5, "waiting_for_a_limit": 0, "unknown_function": 0, "held": 0,
        "dead_letters": 0,
    }  # fmt: skip
    assert {t["key"] for t in snapshot(docket_command, url, "--state", "queued")["tasks"]} == {"now-0", "now-1"}
    assert {t["function"] for t in snapshot(docket_command, url, "--function", "sleep")["tasks"]} == {"sleep"}
    assert {t["key"] for t in snapshot(docket_command, url, "--key", "trace-1")["tasks"]} == {"trace-1"}
    assert snapshot(docket_command, url, "--state", "running", "--state", "queued", "--key", "sleep")["tasks"] == []


def test_snapshots_are_read_page_by_page(url: str, docket_command: Command) -> None:
    add_later(url, 30)
    add_now(url, 5)
    seen: list[str] = []
    after: list[str] = []
    for _ in range(20):
        page = snapshot(docket_command, url, "--limit", "10", *after)
        seen += [task["key"] for task in page["tasks"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert sorted(seen) == sorted([f"now-{i}" for i in range(5)] + [f"trace-{i}" for i in range(30)])
    assert seen[5:] == [f"trace-{i}" for i in range(30)], "what waits for its time comes in the order of time"
    assert len(snapshot(docket_command, url, "--all")["tasks"]) == 35


def test_the_end_of_a_page_says_how_to_go_on(url: str, docket_command: Command) -> None:
    add_later(url, 5)
    text = docket_command("snapshot", "--url", url, "--limit", "2").stdout
    place = text.split("--after ")[1].split()[0]
    assert "trace-2" in docket_command("snapshot", "--url", url, "--limit", "2", "--after", place).stdout


def test_statistics_count_by_function(url: str, docket_command: Command) -> None:
    add_later(url, 3)
    add_now(url, 2)
    stats = snapshot(docket_command, url, "--stats")["stats"]
    assert stats["trace"] == {"running": 0, "queued": 0, "scheduled": 3, "held": 0}
    assert stats["fail"] == {"running": 0, "queued": 2, "scheduled": 0, "held": 0}
    assert "EARLIEST" in docket_command("snapshot", "--url", url, "--stats").stdout


async def test_running_tasks_and_workers_are_shown(any_url: str, docket_command: Command) -> None:
    async with Docket("docket", any_url) as docket, Worker(docket, name="Ada") as worker:
        await docket.add("sleep", key="sleeper")(30)
        working = asyncio.create_task(worker.run_forever())

        async def is_running() -> bool:
            return bool((await docket.snapshot()).running)

        await eventually(is_running, "the task runs")
        seen = await asyncio.to_thread(snapshot, docket_command, any_url)
        workers = await asyncio.to_thread(docket_command, "workers", "ls", "--url", any_url, "--json")
        knowing = await asyncio.to_thread(docket_command, "workers", "for-task", "sleep", "--url", any_url)
        not_knowing = await asyncio.to_thread(docket_command, "workers", "for-task", "cook", "--url", any_url)
        await docket.cancel("sleeper")
        working.cancel()
        await working
    (running,) = seen["tasks"]
    assert (running["key"], running["state"], running["worker"]) == ("sleeper", "running", "Ada")
    assert [w["name"] for w in seen["workers"]] == ["Ada"]
    assert json.loads(workers.stdout)[0]["tasks"] == ["fail", "sleep", "trace"]
    assert "Ada" in knowing.stdout
    assert not_knowing.stdout == "Workers of docket 'docket' that know cook: none\n"


def test_dockets_do_not_see_each_other(url: str, docket_command: Command) -> None:
    add_later(url, 1, name="one")
    assert "1 scheduled" in docket_command("snapshot", "--url", url, "--docket", "one").stdout
    assert "0 scheduled" in docket_command("snapshot", "--url", url, "--docket", "two").stdout


def test_options_come_from_the_environment(url: str, docket_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKET_URL", url)
    monkeypatch.setenv("DOCKET_NAME", "one")
    monkeypatch.setenv("DOCKET_TASK_DELAY", "1h")
    assert "to docket 'one'" in docket_command("tasks", "trace").stdout
    monkeypatch.setenv("DOCKET_JSON", "1")
    assert json.loads(docket_command("snapshot").stdout)["counts"]["scheduled"] == 1


def test_keys_that_would_steer_a_terminal_are_shown_harmless(url: str, docket_command: Command) -> None:
    docket_command("tasks", "trace", "--url", url, "--delay", "1h", "--key", "evil\x1b[31m\nkey")
    text = docket_command("snapshot", "--url", url).stdout
    assert "evil\\x1b[31m\\nkey" in text
    assert "\x1b" not in text


def test_strikes_are_listed_and_removed_by_their_id(docket_command: Command, url: str) -> None:
    assert "none" in docket_command("strikes", "ls", "--url", url).stdout
    docket_command("strike", "trace", "message", "==", "hello", "--url", url)
    redis.Redis.from_url(url).hset("docket:strike-rules", "\u202eodd", b"\xff")

    listed = docket_command("strikes", "ls", "--url", url).stdout
    assert "trace(message == 'hello')" in listed
    assert "\\u202eodd" in listed
    assert "cannot be read" in listed

    rules = json.loads(docket_command("strikes", "ls", "--json", "--url", url).stdout)
    for rule in rules:
        assert "Removed" in docket_command("strikes", "remove", rule["id"], "--url", url).stdout
    assert "No such strike" in docket_command("strikes", "remove", "odd", "--url", url).stdout
    assert "none" in docket_command("strikes", "ls", "--url", url).stdout
