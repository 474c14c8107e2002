"""Commands on a machine whose clock is two days off: the server's clock says what "an hour ago" and
"in ten minutes" are."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from docket import Docket, Worker
from docket.testing.servers import ServerProcess

from .processes import surroundings

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from chaos.wrong_clock import shift_clock
shift_clock(float(sys.argv.pop(1)))
from docket.cli.app import app
app()
"""


async def fails() -> None:
    raise ValueError("as asked")


tasks = [fails]


@pytest.fixture
def url(redis_server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{redis_server.port}/5"


def printed(url: str, seconds: float, *words: str) -> str:
    """What a command prints on a machine whose clock is off by so many seconds."""
    program = [sys.executable, "-c", PROGRAM, str(seconds), *words, "--url", url]
    done = subprocess.run(program, cwd=ROOT, env=surroundings(), capture_output=True, encoding="utf-8", check=True)
    return done.stdout


def asked(url: str, seconds: float, *words: str) -> Any:
    return json.loads(printed(url, seconds, *words, "--json"))


async def fail_one(url: str) -> None:
    async with Docket("docket", url) as docket:
        await docket.server.client.flushdb()
        docket.register(fails)
        await docket.add(fails)()
        async with Worker(docket) as worker:
            await worker.run_until_finished()


DAYS = 2 * 24 * 3600.0


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_an_hour_ago_is_an_hour_ago_on_the_servers_clock(url: str, seconds: float) -> None:
    asyncio.run(fail_one(url))
    assert asked(url, seconds, "stats", "--since", "1h")["total"]["endings"]["failed"] == 1
    assert len(asked(url, seconds, "history", "--since", "1h")["runs"]) == 1
    assert asked(url, seconds, "dead", "ls", "--since", "1h")["matched"] == 1
    assert "48h" not in printed(url, seconds, "dead", "ls")
    assert asked(url, seconds, "dead", "retry", "--since", "1h", "--dry-run")["matched"] == 1
    assert asked(url, seconds, "dead", "discard", "--until", "1h")["discarded"] == 0
    assert asked(url, seconds, "dead", "discard", "--since", "1h")["discarded"] == 1


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_a_delay_begins_on_the_servers_clock(url: str, seconds: float) -> None:
    added = asked(url, seconds, "add", "tests.cli.test_wrong_clocks:fails", "--in", "1h")
    off = datetime.fromisoformat(added["when"]) - datetime.now(UTC) - timedelta(hours=1)
    assert abs(off) < timedelta(minutes=30)
