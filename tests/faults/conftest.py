"""Each test has a docket, reports, servers and processes of its own, of which nothing stays."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from docket import Docket, Worker
from docket.storage.embedded import memory_engine
from docket.testing.servers import ServerGroup
from tests.waiting import eventually

from .processes import LEASE, Process, WorkerProcess
from .reports import VARIABLE, Reports
from .servers import Server

Group = TypeVar("Group", bound=ServerGroup)

_numbers = itertools.count()
_FOLDER = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(_FOLDER):
            item.add_marker(pytest.mark.faults)


def private_url(name: str) -> str:
    """A database of this test process's own embedded server, for other processes too."""
    address = memory_engine(f"{name}-{next(_numbers)}")
    return f"unix://{address.socket_path}?db={address.database}"


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folder: a socket's name may not be longer than about a hundred bytes.
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reports]:
    reports = Reports(private_url("reports"))
    monkeypatch.setenv(VARIABLE, reports.url)
    yield reports
    reports.close()


class Harness:
    """What a test needs: a docket, workers here and in other processes, servers to harm."""

    def __init__(self, folder: Path, reports: Reports, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.reports = reports
        self.url = private_url("docket")
        self.name = f"faults-{next(_numbers)}"
        self.processes: list[Process] = []
        self.servers: list[Server] = []
        self.groups: list[ServerGroup] = []
        self._stack = stack

    async def docket(self, name: str | None = None, *, lease: float = LEASE, **options: Any) -> Docket:
        """An open docket whose workers have short leases."""
        options = {"heartbeat_interval": timedelta(seconds=lease / 4), "missed_heartbeats": 4, **options}
        return await self._stack.enter_async_context(Docket(name or self.name, options.pop("url", self.url), **options))

    async def worker(self, docket: Docket, **options: Any) -> Worker:
        """An open worker in this process."""
        options = {"reconnection_delay": timedelta(seconds=0.5), **options}
        return await self._stack.enter_async_context(Worker(docket, **options))

    def server(self, *options: str, **more: Any) -> Server:
        """A server of the test's own, which the docket is on from now."""
        self.servers.append(Server(*options, **more))
        self.url = self.servers[-1].start().url
        return self.servers[-1]

    def group(self, group: Group) -> Group:
        """Servers that belong together, which the docket is on from now."""
        self.groups.append(group)
        self.url = group.start().url
        return group

    def process(self, arguments: Sequence[str]) -> Process:
        self.processes.append(Process(arguments, self._new_log(), self.reports.url))
        return self.processes[-1]

    def worker_process(
        self,
        *,
        tasks: Sequence[str] = ("every_task",),
        concurrency: int = 10,
        lease: float = LEASE,
        grace: float = 60.0,
        clock_seconds: float = 0.0,
        url: str | None = None,
        workers: int = 1,
    ) -> WorkerProcess:
        """A worker in a process of its own, or several that share one."""
        process = WorkerProcess(
            self._new_log(),
            self.reports.url,
            docket_name=self.name,
            url=url or self.url,
            name=f"worker-{len(self.processes)}",
            tasks=tasks,
            concurrency=concurrency,
            lease=lease,
            grace=grace,
            clock_seconds=clock_seconds,
            workers=workers,
        )
        self.processes.append(process)
        return process

    async def at_work(self, docket: Docket, *workers: WorkerProcess) -> None:
        """Returns when all of them are registered."""

        async def present() -> bool:
            ended = [worker for worker in workers if worker.exit_code is not None]
            assert not ended, f"{ended[0].name} ended:\n{ended[0].output[-3000:]}"
            return {worker.name for worker in workers} <= {info.name for info in await docket.workers()}

        await eventually(present, "the workers work")

    async def started(self, key: str, times: int = 1) -> None:
        await eventually(lambda: self.reports.count("start", key) >= times, f"task {key} started {times} time(s)")

    def _new_log(self) -> Path:
        return self.folder / f"process{len(self.processes)}.log"

    def clean_up(self) -> None:
        for server in (*self.servers, *self.groups):
            server.close()
        for process in self.processes:
            process.clean_up()
            # Shown by pytest if the test failed.
            print(f"--- {process.log.name} (pid {process.pid}, exit {process.exit_code})\n{process.output[-20_000:]}")


@pytest.fixture
async def harness(folder: Path, reports: Reports) -> AsyncIterator[Harness]:
    async with AsyncExitStack() as stack:
        harness = Harness(folder, reports, stack)
        stack.callback(harness.clean_up)
        yield harness


@pytest.fixture(autouse=True)
def no_temporary_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DOCKET_ENGINE")]:
        monkeypatch.delenv(name)
