"""The Prefect server itself, with this package under
its background services. `make test-clients` runs it."""

import asyncio
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.server.services.perpetual_services import get_enabled_perpetual_services

from docket import Docket
from tests.waiting import eventually

# What Prefect's own dependencies deprecate is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")

STARTING = 180.0


class Prefect:
    """A server in a process of its own."""

    def __init__(self, port: int, name: str, url: str) -> None:
        self.api = f"http://127.0.0.1:{port}/api"
        self.name, self.url = name, url

    async def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        while True:
            try:
                return await asyncio.to_thread(self._call, path, body)
            except urllib.error.HTTPError as error:
                # As Prefect's own client does: its database is locked, on a busy machine.
                if error.code != 503:
                    raise
            await asyncio.sleep(0.5)

    def _call(self, path: str, body: dict[str, Any] | None) -> Any:
        request = urllib.request.Request(f"{self.api}{path}", headers={"Content-Type": "application/json"})
        if body is not None:
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    async def is_healthy(self) -> bool:
        try:
            return await self.call("/health") is True
        except OSError:
            return False

    async def deployment(self, **settings: Any) -> Any:
        flow = await self.call("/flows/", {"name": "greeting"})
        return await self.call("/deployments/", {"name": "daily", "flow_id": flow["id"], **settings})


def unexplained_tracebacks(text: str) -> list[str]:
    """The tracebacks in a log, without those of Prefect's SQLite: several of Prefect's services
    write to one file, and on a busy machine the file is locked for longer than they wait."""
    _, *tracebacks = text.split("Traceback (most recent call last):")
    return [
        traceback
        for traceback in tracebacks
        if "sqlite3.OperationalError" not in traceback or "database is locked" not in traceback
    ]


@pytest.fixture
async def prefect(name: str, url: str, tmp_path: Path) -> Any:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_SERVER_DOCKET_NAME": name,
        "PREFECT_SERVER_DOCKET_URL": url,
        "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "0.5",
        "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "0",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",
        "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
    }
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-ui",
    ]
    log = tmp_path / "prefect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=output, stderr=subprocess.STDOUT)
        try:
            server = Prefect(port, name, url)
            await eventually(server.is_healthy, "the server is healthy", STARTING)
            yield server
        finally:
            process.terminate()
            code = await asyncio.to_thread(process.wait, 60)
    text = log.read_text("utf-8", "replace")
    assert not unexplained_tracebacks(text), unexplained_tracebacks(text)[0][-4000:]
    assert code in (0, -15), text[-4000:]


@pytest.fixture
def url(server: str) -> str:
    """A server, so that the test can look at the docket of the other process."""
    return server


def test_only_a_locked_database_explains_a_traceback() -> None:
    start = "Traceback (most recent call last):\n"
    locked = "(sqlite3.OperationalError) database is locked\n"
    assert unexplained_tracebacks("all is well") == []
    assert (
        unexplained_tracebacks(f"{start}  a\nsqlite3.OperationalError: database is locked\n{start}  b\n{locked}") == []
    )
    assert unexplained_tracebacks(f"{start}  a\n{locked}{start}  b\nKeyError: 'x'\n") == ["\n  b\nKeyError: 'x'\n"]


def test_prefect_is_satisfied_by_this_distribution() -> None:
    assert importlib.metadata.version("pydocket") == "0.27.0"
    assert any("pydocket" in requirement for requirement in importlib.metadata.requires("prefect") or ())


@pytest.mark.timeout(600)
async def test_the_services_of_a_prefect_server_run(prefect: Prefect) -> None:
    """One server for all, since its start takes long: it marks
    a late run, schedules runs, and has its chains waiting."""
    deployment = await prefect.deployment(
        schedules=[{"active": True, "schedule": {"interval": 3600, "anchor_date": "2020-01-01T00:00:00Z"}}]
    )
    past = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": past}}
    late = await prefect.call(f"/deployments/{deployment['id']}/create_flow_run", {"state": state})

    async def is_late() -> bool:
        return (await prefect.call(f"/flow_runs/{late['id']}"))["state"]["name"] == "Late"

    async def are_scheduled() -> bool:
        runs = await prefect.call("/flow_runs/filter", {"flow_runs": {"tags": {"all_": ["auto-scheduled"]}}})
        return len(runs) > 1

    async with Docket(name=prefect.name, url=prefect.url, execution_ttl=timedelta(0)) as docket:

        async def are_chains_alive() -> bool:
            snapshot = await docket.snapshot()
            keys = {execution.key for execution in [*snapshot.future, *snapshot.running]}
            return {service.function.__name__ for service in get_enabled_perpetual_services()} <= keys

        await eventually(is_late, "the run is late", STARTING)
        await eventually(are_scheduled, "the runs are scheduled", STARTING)
        await eventually(are_chains_alive, "the chains of all services are alive", STARTING)
        assert len(await docket.workers()) == 1
