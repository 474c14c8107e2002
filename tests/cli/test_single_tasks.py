"""Commands about single tasks and about all tasks that match: show, cancel, clear, snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, ExecutionState, Perpetual, Progress, Retry, Worker
from tests.waiting import eventually

from .conftest import Command
from .processes import Terminal

HOUR = timedelta(hours=1)


async def scan(number: int = 0) -> None: ...


async def mail(text: str = "") -> None: ...


async def stumble(progress: Progress = Progress()) -> None:
    await progress.set_total(3)
    await progress.increment()
    raise LookupError("no such order")


def on(url: str, work: Callable[[Docket], Awaitable[Any]]) -> Any:
    async def open_and_work() -> Any:
        async with Docket("docket", url) as docket:
            for function in (scan, mail, stumble):
                docket.register(function)
            return await work(docket)

    return asyncio.run(open_and_work())


async def add_some(docket: Docket) -> None:
    for number in range(3):
        await docket.add(scan, docket.now() + HOUR, f"scan-{number}")(number)
    await docket.add(mail, docket.now() + HOUR, "mail-later")()
    await docket.add(mail, key="mail-now")("x" * 100_000)


async def run_all(docket: Docket) -> None:
    await docket.add(scan, key="done")()
    await docket.add(stumble, key="failed")()
    await docket.add(scan, key="gone")()
    await docket.cancel("gone")
    async with Worker(docket, name="host#1") as worker:
        await worker.run_until_finished()


def state_of(url: str, key: str) -> ExecutionState | None:
    async def read(docket: Docket) -> ExecutionState | None:
        execution = await docket.get_execution(key)
        return execution.state if execution is not None else None

    return on(url, read)


# show


def test_everything_about_a_task(any_url: str, docket_command: Command) -> None:
    on(any_url, add_some)
    shown = docket_command("show", "mail-now", "--url", any_url)
    assert shown.exit_code == 0, shown.output
    lines = dict(line.split(":", 1) for line in shown.stdout.splitlines())
    assert (lines["Key"].strip(), lines["Function"].strip(), lines["State"].strip()) == ("mail-now", "mail", "queued")
    assert "pickle, plain, stored apart" in lines["Arguments"]
    details = json.loads(docket_command("show", "scan-1", "--url", any_url, "--json").stdout)
    assert (details["function"], details["state"], details["codec"]) == ("scan", "scheduled", "pickle")
    assert details["why"]["code"] == "not_due"
    assert details["traceback"] is None


def test_a_failed_task_is_shown_with_its_traceback(url: str, docket_command: Command) -> None:
    on(url, run_all)
    shown = docket_command("show", "failed", "--url", url).stdout
    assert "LookupError: no such order" in shown
    assert "Traceback (most recent call last)" in shown
    assert "in stumble" in shown
    assert "1 of 3" in shown
    details = json.loads(docket_command("show", "failed", "--url", url, "--json").stdout)
    assert (details["state"], details["worker"]) == ("failed", "host#1")
    assert details["progress"] == {
        "current": 1,
        "total": 3,
        "message": None,
        "updated_at": details["progress"]["updated_at"],
    }


def test_a_failed_task_is_shown_from_its_dead_letter_when_its_record_has_expired(
    url: str, docket_command: Command
) -> None:
    async def fail_and_expire() -> None:
        async with Docket("docket", url, execution_ttl=timedelta(milliseconds=1)) as docket:
            docket.register(stumble)
            await docket.add(stumble, key="failed")()
            async with Worker(docket, name="host#1") as worker:
                await worker.run_until_finished()
            await eventually(lambda: is_gone(docket), "the record has expired")

    async def is_gone(docket: Docket) -> bool:
        return (await docket.ledger.tasks.get("failed")).finished is None

    asyncio.run(fail_and_expire())
    shown = docket_command("show", "failed", "--url", url).stdout
    assert "is kept as a dead letter" in shown
    assert "in stumble" in shown
    details = json.loads(docket_command("show", "failed", "--url", url, "--json").stdout)
    assert (details["state"], details["worker"], details["function"]) == ("failed", "host#1", "stumble")
    assert details["error"] == "LookupError: no such order"


def test_the_attempts_that_failed_are_shown(url: str, docket_command: Command) -> None:
    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        raise LookupError(f"attempt {retry.attempt}")

    async def fail_twice(docket: Docket) -> None:
        await docket.add(flaky, key="flaky")()
        async with Worker(docket) as worker:
            await worker.run_until_finished()

    on(url, fail_twice)
    shown = docket_command("show", "flaky", "--url", url).stdout
    assert "LookupError: attempt 1" in shown
    details = json.loads(docket_command("show", "flaky", "--url", url, "--json").stdout)
    assert (details["attempt"], details["error"]) == (2, "LookupError: attempt 2")
    assert [failed["error"] for failed in details["failed_attempts"]] == ["LookupError: attempt 1"]


def test_a_task_that_is_not_there(url: str, docket_command: Command) -> None:
    result = docket_command("show", "nothing", "--url", url)
    assert (result.exit_code, "has no task 'nothing'" in result.stderr) == (1, True)


# cancel


def test_tasks_are_cancelled_by_key(any_url: str, docket_command: Command) -> None:
    on(any_url, add_some)
    result = docket_command("cancel", "scan-0", "scan-1", "--url", any_url)
    assert (result.exit_code, result.stdout) == (0, "Cancelled task 'scan-0'\nCancelled task 'scan-1'\n")
    assert state_of(any_url, "scan-0") is ExecutionState.CANCELLED
    again = docket_command("cancel", "scan-0", "scan-2", "--url", any_url, "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout)["tasks"] == [
        {"key": "scan-0", "answer": "not_found"},
        {"key": "scan-2", "answer": "cancelled"},
    ]


def test_the_worker_of_a_running_task_is_asked(url: str, docket_command: Command) -> None:
    async def claim(docket: Docket) -> None:
        await (await docket.add(scan, key="runs")()).claim("somebody")

    on(url, claim)
    result = docket_command("cancel", "runs", "--url", url)
    assert (result.exit_code, "asked to cancel it" in result.stdout) == (0, True)
    by_function = docket_command("cancel", "--function", "scan", "--url", url, "--json")
    assert json.loads(by_function.stdout) == {"docket": "docket", "function": "scan", "cancelled": 0, "asked": 1}


def test_all_tasks_of_a_function_are_cancelled(any_url: str, docket_command: Command) -> None:
    on(any_url, add_some)
    result = docket_command("cancel", "--function", "scan", "--url", any_url)
    assert result.stdout == "Cancelled 3 waiting tasks of scan (docket 'docket')\n"
    assert state_of(any_url, "scan-2") is ExecutionState.CANCELLED
    assert state_of(any_url, "mail-later") is ExecutionState.SCHEDULED
    none = docket_command("cancel", "--function", "other", "--url", any_url)
    assert (none.exit_code, "Cancelled 0 waiting tasks" in none.stdout) == (0, True)


def test_an_automatic_task_that_was_cancelled_by_function_stays_cancelled(url: str, docket_command: Command) -> None:
    async def nightly(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None: ...

    async def start(docket: Docket) -> None:
        docket.register(nightly)
        async with Worker(docket) as worker:
            await worker.run_at_most({"nightly": 1})
        await docket.add(nightly, docket.now() + HOUR, "nightly")()

    async def is_cancelled(docket: Docket) -> bool:
        return (await docket.why("nightly")).also[-1].code == "chain_cancelled"

    on(url, start)
    docket_command("cancel", "--function", "nightly", "--url", url)
    assert on(url, is_cancelled)


@pytest.mark.parametrize("arguments", [(), ("key", "--function", "scan")])
def test_a_cancel_needs_keys_or_a_function(arguments: tuple[str, ...], url: str, docket_command: Command) -> None:
    result = docket_command("cancel", *arguments, "--url", url)
    assert (result.exit_code, "name the keys of tasks, or a function" in result.stderr) == (2, True)


# clear


def test_clear_takes_filters(any_url: str, docket_command: Command) -> None:
    on(any_url, add_some)

    def cleared(*arguments: str) -> int:
        return json.loads(docket_command("clear", *arguments, "--url", any_url, "--json").stdout)["removed"]

    assert cleared("--function", "mail", "--state", "queued") == 1
    assert cleared("--key", "scan-2") == 1
    assert cleared("--function", "nothing") == 0
    assert cleared("--function", "mail", "--key", "scan") == 0
    assert cleared("--state", "scheduled", "--function", "scan") == 2
    assert state_of(any_url, "mail-later") is ExecutionState.SCHEDULED
    assert cleared() == 1


def test_the_api_clears_with_filters_and_refuses_other_states(url: str) -> None:
    async def work(docket: Docket) -> None:
        await add_some(docket)
        assert await docket.clear(function=scan) == 3
        assert await docket.clear(key_prefix="mail-n", state=ExecutionState.QUEUED) == 1
        with pytest.raises(ValueError, match="only waiting tasks are cleared"):
            await docket.clear(state=ExecutionState.RUNNING)
        assert await docket.clear() == 1

    on(url, work)


def answered(url: str, answer: bytes, *arguments: str) -> tuple[int, str]:
    """What a command on a terminal does after this answer."""
    terminal = Terminal(*arguments, "--url", url)
    try:
        terminal.shows("[y/N]")
        terminal.types(answer)
        return terminal.ends(), terminal.output
    finally:
        terminal.close()


def test_on_a_terminal_clear_and_cancel_ask_first(url: str) -> None:
    on(url, add_some)
    code, output = answered(url, b"n\n", "clear")
    assert (code, "nothing was changed" in output) == (1, True), output
    assert "Cancel 5 waiting tasks of docket 'docket'" in output
    assert state_of(url, "scan-0") is ExecutionState.SCHEDULED
    code, output = answered(url, b"y\n", "clear", "--key", "scan-0")
    assert (code, "Removed 1 task" in output) == (0, True), output
    code, output = answered(url, b"\n", "cancel", "--function", "scan")
    assert (code, "Cancel 2 waiting and 0 running tasks of scan" in output) == (1, True), output
    assert state_of(url, "scan-1") is ExecutionState.SCHEDULED


def test_on_a_terminal_yes_answers_in_advance(url: str) -> None:
    on(url, add_some)
    terminal = Terminal("clear", "--yes", "--url", url)
    try:
        terminal.shows("Removed 5 tasks")
        assert terminal.ends() == 0
        assert "[y/N]" not in terminal.output
    finally:
        terminal.close()


# snapshot


def test_a_snapshot_of_finished_tasks(any_url: str, docket_command: Command) -> None:
    on(any_url, run_all)
    shown = docket_command("snapshot", "--state", "failed", "--url", any_url)
    assert shown.exit_code == 0, shown.output
    assert "LookupError: no such order" in shown.stdout
    assert "done" not in shown.stdout

    def tasks(*arguments: str) -> list[dict[str, Any]]:
        result = docket_command("snapshot", *arguments, "--url", any_url, "--json")
        return json.loads(result.stdout)["tasks"]

    (failed,) = tasks("--state", "failed")
    assert (failed["key"], failed["error"], failed["worker"]) == ("failed", "LookupError: no such order", "host#1")
    assert failed["completed_at"] is not None
    assert {task["key"] for task in tasks("--state", "completed", "--state", "cancelled")} == {"done", "gone"}
    assert tasks("--state", "failed", "--function", "scan") == []
    assert tasks() == []
    on(any_url, add_some)
    both = tasks("--state", "scheduled", "--state", "failed")
    assert [task["state"] for task in both] == ["scheduled"] * 4 + ["failed"]
    assert len({frozenset(task) for task in both}) == 1, "all tasks have the same fields"


def test_pages_of_finished_tasks(url: str, docket_command: Command) -> None:
    async def end_many(docket: Docket) -> None:
        await docket.add_many(docket.call(scan, key=f"scan-{n}")(n) for n in range(120))
        await docket.clear()

    on(url, end_many)
    keys, after = set[str](), list[str]()
    for _ in range(200):
        result = docket_command("snapshot", "--state", "cancelled", "-n", "10", *after, "--url", url, "--json")
        page = json.loads(result.stdout)
        keys |= {task["key"] for task in page["tasks"]}
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert len(keys) == 120


# JSON


@pytest.mark.parametrize("command", ["version", "acl"])
def test_commands_that_need_no_server_write_json_too(command: str, docket_command: Command) -> None:
    assert json.loads(docket_command(command, "--json").stdout)
