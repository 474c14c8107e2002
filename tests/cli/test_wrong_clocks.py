"""Commands on a machine whose clock is two days off: the server's clock says what "an hour ago" and
"in ten minutes" are."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from docket import Docket, Worker
from docket.testing.servers import ServerProcess

from .processes import surroundings

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
import sys
from chaos.wrong_clock import shift_clock
seconds, commands = json.loads(sys.argv[1])
shift_clock(seconds)
from typer.testing import CliRunner
from docket.cli.app import app
runs = [CliRunner().invoke(app, words) for words in commands]
print(json.dumps([(run.exit_code, run.stdout, run.stderr) for run in runs]))
"""


async def fails() -> None:
    raise ValueError("as asked")


tasks = [fails]


@pytest.fixture
def url(redis_server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{redis_server.port}/5"


def printed(url: str, seconds: float, *commands: str) -> list[str]:
    """What these commands print, one after the other, on a
    machine whose clock is off by so many seconds."""
    request = json.dumps([seconds, [[*command.split(), "--url", url] for command in commands]])
    program = [sys.executable, "-c", PROGRAM, request]
    done = subprocess.run(program, cwd=ROOT, env=surroundings(), capture_output=True, encoding="utf-8", check=True)
    outputs: list[str] = []
    for (code, output, errors), command in zip(json.loads(done.stdout), commands, strict=True):
        assert code == 0, f"{command}: {output} {errors}"
        outputs.append(output)
    return outputs


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
    listed, *answers = printed(
        url,
        seconds,
        "dead ls",
        "stats --since 1h --json",
        "history --since 1h --json",
        "dead ls --since 1h --json",
        "dead retry --since 1h --dry-run --json",
        "dead discard --until 1h --json",
        "dead discard --since 1h --json",
    )
    assert "ValueError" in listed
    assert "48h" not in listed
    stats, history, found, retried, older, younger = map(json.loads, answers)
    assert stats["total"]["endings"]["failed"] == 1
    assert len(history["runs"]) == 1
    assert found["matched"] == 1
    assert retried["matched"] == 1
    assert older["discarded"] == 0
    assert younger["discarded"] == 1


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_a_delay_begins_on_the_servers_clock(url: str, seconds: float) -> None:
    (added,) = printed(url, seconds, "add tests.cli.test_wrong_clocks:fails --in 1h --json")
    off = datetime.fromisoformat(json.loads(added)["when"]) - datetime.now(UTC) - timedelta(hours=1)
    assert abs(off) < timedelta(minutes=30)
