"""`docket add`: any task, from a shell."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from docket import Docket, Execution, Retry
from docket.cli import add
from docket.errors import MissingPackage

from .conftest import Command


async def ship(order: UUID, weight: float = 1.5, *, tags: list[str] | None = None, retry: Retry = Retry()) -> None: ...


async def greet(name, count=1) -> None: ...  # type: ignore[no-untyped-def]


@pytest.fixture(autouse=True)
def warehouse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that a user might have."""
    module = types.ModuleType("warehouse")
    module.ship, module.greet, module.tasks, module.number = ship, greet, [ship, greet], 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "warehouse", module)


def stored(url: str, key: str, **options: Any) -> Execution | None:
    async def read() -> Execution | None:
        async with Docket("docket", url, **options) as docket:
            docket.register(ship)
            docket.register(greet)
            return await docket.get_execution(key)

    return asyncio.run(read())


ORDER = "12345678-1234-5678-1234-567812345678"


def test_a_function_of_a_module_with_arguments_of_its_types(any_url: str, docket_command: Command) -> None:
    arguments = ("warehouse:ship", f'"{ORDER}"', 'tags=["a", "b"]', "--key", "ship-1", "--in", "1h")
    result = docket_command("add", *arguments, "--url", any_url)
    assert (result.exit_code, result.stdout) == (0, "Added ship task 'ship-1' to docket 'docket'\n"), result.output
    execution = stored(any_url, "ship-1")
    assert execution is not None
    assert (execution.args, execution.kwargs) == ((UUID(ORDER),), {"tags": ["a", "b"]})
    left = execution.when - datetime.now(UTC)
    assert timedelta(minutes=50) < left <= timedelta(hours=1)
    again = docket_command("add", *arguments, "--url", any_url)
    assert (again.exit_code, "already has a task 'ship-1'" in again.stdout) == (0, True)


def test_a_name_with_tasks_a_time_and_json(url: str, docket_command: Command) -> None:
    at = "2035-01-31T09:00:00+01:00"
    arguments = ("greet", '"Ada"', "-5", "--tasks", "warehouse:tasks", "--at", at, "--json", "--url", url)
    result = docket_command("add", *arguments)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert {
        "docket": "docket",
        "task": "greet",
        "disposition": "scheduled",
        "state": "scheduled",
    }.items() <= answer.items()
    assert datetime.fromisoformat(answer["when"]) == datetime.fromisoformat(at)
    execution = stored(url, answer["key"])
    assert execution is not None
    assert execution.args == ("Ada", -5)


def test_a_built_in_task_by_name(url: str, docket_command: Command) -> None:
    assert docket_command("add", "trace", '"hello"', "--url", url).exit_code == 0


def test_a_name_without_its_code_needs_the_json_codec(url: str, docket_command: Command) -> None:
    refused = docket_command("add", "scan", "1", "--url", url)
    assert refused.exit_code == 2
    assert "no task is registered as 'scan'" in refused.stderr
    assert "--tasks" in refused.stderr
    added = docket_command("add", "greet", '"Ada"', "count=2", "--key", "k", "--codec", "json", "--url", url)
    assert added.exit_code == 0, added.output
    assert "No live worker knows 'greet'" in added.stderr
    execution = stored(url, "k", codec="json")
    assert execution is not None
    assert (execution.args, execution.kwargs) == (("Ada",), {"count": 2})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("warehouse:ship",), "'order'"),
        (("warehouse:ship", '"no uuid"'), "argument 'order' does not fit its annotation"),
        (("warehouse:ship", f'"{ORDER}"', "heavy"), "'heavy' is not JSON; if it is text, quote it twice: '\"heavy\"'"),
        (("warehouse:ship", f'"{ORDER}"', "weight=heavy"), "quote it twice: 'weight=\"heavy\"'"),
        (("warehouse:ship", f'"{ORDER}"', "NaN"), "'NaN' is not JSON"),
        (("warehouse:ship", f'"{ORDER}"', "colour=1"), "'colour'"),
        (("warehouse:ship", f'"{ORDER}"', "weight=1", "weight=2"), "the argument 'weight' is there twice"),
        (("warehouse:ship", f'"{ORDER}"', "--kye", "a"), "no such option: --kye"),
        (("warehouse:ship", f'"{ORDER}"', "--in", "1h", "--at", "2035-01-01"), "--in and --at: give one of them"),
        (("warehouse:ship", f'"{ORDER}"', "--at", "soon"), "'soon' is not a time"),
        (("warehouse:number",), "warehouse:number"),
        (("warehouse:shipp",), "has no 'shipp'"),
        (("nowhere:ship",), "there is no module 'nowhere'"),
    ],
)
def test_wrong_calls_are_one_line_and_add_nothing(
    arguments: tuple[str, ...], problem: str, url: str, docket_command: Command
) -> None:
    result = docket_command("add", *arguments, "--url", url)
    assert result.exit_code == 2, result.output
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1
    counts = json.loads(docket_command("snapshot", "--url", url, "--json").stdout)["counts"]
    assert counts["scheduled"] == counts["queued"] == 0


def test_a_struck_task_is_not_added(url: str, docket_command: Command) -> None:
    docket_command("strike", "greet", "--url", url)
    result = docket_command("add", "warehouse:greet", '"Ada"', "--url", url)
    assert (result.exit_code, "a strike" in result.stdout) == (1, True)


def test_without_the_package_of_the_json_codec_plain_types_work(
    url: str, docket_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise MissingPackage("not installed")

    monkeypatch.setattr(add, "JsonCodec", missing)
    assert docket_command("add", "warehouse:greet", '"Ada"', "count=2", "--url", url).exit_code == 0
    result = docket_command("add", "warehouse:ship", f'"{ORDER}"', "--url", url)
    assert (result.exit_code, "argument 'order'" in result.stderr) == (1, True)
    assert "docket[json]" in result.stderr
