"""`docket stats`: a table for people, JSON for programs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from docket import Docket, Retry, Worker
from tests.waiting import ends

from .conftest import Command

pytestmark = pytest.mark.timeout(600)


async def fail_once(retry: Retry = Retry(attempts=2)) -> None:
    if retry.attempt == 1:
        raise ValueError("not yet")


async def plain(number: int) -> None: ...


async def work(url: str) -> None:
    async with Docket("docket", url) as docket, Worker(docket) as worker:
        await docket.add(fail_once)()
        for number in range(3):
            await docket.add(plain)(number)
        await ends(worker.run_until_finished())


def test_a_line_for_each_function_and_the_total(any_url: str, docket_command: Command) -> None:
    asyncio.run(work(any_url))
    result = docket_command("stats", "--url", any_url, "--since", "10m")
    assert result.exit_code == 0, result.output
    title, head, first, second, total = result.stdout.splitlines()
    assert title.startswith("docket 'docket', ")
    assert head.split()[:6] == ["FUNCTION", "SUCCEEDED", "FAILED", "RETRIED", "CANCELLED", "OTHERS"]
    assert first.split()[:6] == ["plain", "3", "0", "0", "0", "0"]
    assert second.split()[:6] == ["fail_once", "1", "0", "1", "0", "0"]
    assert total.split()[:6] == ["Total", "4", "0", "1", "0", "0"]


def test_one_function_by_time_and_for_programs(url: str, docket_command: Command) -> None:
    asyncio.run(work(url))
    lines = docket_command("stats", "plain", "--url", url, "--by-time", "--since", "2d").stdout.splitlines()
    assert sum(int(line.split()[2]) for line in lines[2:] if not line.startswith("Total")) == 3
    facts: Any = json.loads(docket_command("stats", "--url", url, "--json").stdout)
    assert facts["total"]["endings"] == {"succeeded": 4, "retried": 1}
    assert facts["total"]["run_seconds"]["count"] == 5
    assert [one["function"] for one in facts["functions"]] == ["plain", "fail_once"]
    assert facts["resolution_seconds"] == 60


def test_nothing_has_ended_yet(url: str, docket_command: Command) -> None:
    docket_command("tasks", "trace", "--url", url, "--delay", "1h")
    result = docket_command("stats", "--url", url)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2


def test_a_duration_that_is_none_is_refused(url: str, docket_command: Command) -> None:
    assert docket_command("stats", "--url", url, "--since", "yesterday").exit_code == 2


def test_top_shows_retries_and_failing_functions(url: str, docket_command: Command) -> None:
    asyncio.run(work(url))
    place = ("top", "--url", url, "--count", "1")
    assert "retried 1 in 5m" in docket_command(*place).stdout
    facts: Any = json.loads(docket_command(*place, "--json").stdout)
    assert (facts["recently_retried"], facts["recently_failed"], facts["failing"]) == (1, 0, {"fail_once": 1})
