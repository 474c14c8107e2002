"""Starts, commands and stops the processes of a system."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.adapters.marks import Marks
from bench.environments import Environment
from bench.systems import ROOT, Kind, System

LEAVE_SECONDS = 5.0


class SessionFailed(Exception):
    """The system failed in a session. The text goes into the table."""


class NotSupported(Exception):
    """The system has no such feature; the text goes into the table."""


class Stage:
    """The setting of a session: the environment, the server, a
    folder for logs, and the marks."""

    def __init__(self, system: System, environment: Environment, url: str, folder: Path, tasks: int) -> None:
        self.system = system
        self.folder = folder
        self.marks = Marks.create(folder / "marks", tasks)
        self._python = environment.python
        self._environment = {
            **os.environ,
            "BENCH_URL": url,
            "BENCH_MARKS": str(folder / "marks"),
            "PYTHONPATH": os.pathsep.join(_import_path(system)),
            "PYTHONSAFEPATH": "1",
            "BENCH_PACKAGES": str(environment.packages or ""),
        }
        # A peer must not import packages of the harness's environment.
        self._environment.pop("VIRTUAL_ENV", None)

    def start(self, role: str, log: Path, settings: dict[str, str], *, pipes: bool) -> subprocess.Popen[str]:
        with log.open("ab") as errors:
            return subprocess.Popen(
                [str(self._python), "-m", "bench.adapters", self.system.name, role],
                cwd=self.folder,
                env={**self._environment, **settings},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else errors,
                stderr=errors,
                text=True,
            )

    def run_code(self, code: str) -> subprocess.CompletedProcess[str]:
        """Runs some Python of its own in the environment of the system."""
        return self._run("-c", code)

    def run_module(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the system."""
        return self._run("-m", module, *arguments)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._python), *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )


class ProducerProcess:
    """A producer process. It executes one command at a time."""

    def __init__(self, stage: Stage, *, results: bool) -> None:
        self._log = stage.folder / "producer.log"
        settings = {"BENCH_RESULTS": "1" if results else "0"}
        self._process = stage.start("produce", self._log, settings, pipes=True)

    def order(self, name: str, limit: float, **arguments: Any) -> dict[str, Any]:
        """Raises SessionFailed if there is no good answer within
        `limit` seconds, NotSupported if there can be none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"order": name, **arguments}) + "\n")
            self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], limit)[0]:
            raise SessionFailed(f"no answer to {name!r} after {limit:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise SessionFailed(f"the producer ended: {last_line(self._log)}")
        answer = json.loads(line)
        if "unsupported" in answer:
            raise NotSupported(answer["unsupported"])
        if "failed" in answer:
            raise SessionFailed(answer["failed"])
        return answer["done"]

    def leave(self) -> None:
        """Closes its connections and ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            end_tree(self._process)
        self._process.stdout.close()


class WorkerProcesses:
    """One or more worker processes, with the processes that they start themselves."""

    def __init__(
        self,
        stage: Stage,
        concurrency: int,
        *,
        processes: int,
        results: bool,
        computing: bool,
        default_log: bool,
    ) -> None:
        self._log = stage.folder / "worker.log"
        settings = {
            "BENCH_CONCURRENCY": str(concurrency),
            "BENCH_RESULTS": "1" if results else "0",
            "BENCH_POOL": "processes" if computing else "",
            "BENCH_LOG": "default" if default_log else "",
        }
        self._processes = [stage.start("work", self._log, settings, pipes=False) for _ in range(processes)]

    def check(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise SessionFailed(f"the worker ended: {last_line(self._log)}")

    def cpu_seconds(self) -> float:
        """Of all its processes until now, the ended ones included."""
        total = 0.0
        for process in self._processes:
            for member in tree(process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = member.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
        return total

    def leave(self) -> None:
        for process in self._processes:
            end_tree(process)


@contextmanager
def producing(stage: Stage, *, results: bool = False) -> Generator[ProducerProcess, None, None]:
    producer = ProducerProcess(stage, results=results)
    try:
        yield producer
    finally:
        producer.leave()


@contextmanager
def working(
    stage: Stage,
    concurrency: int,
    *,
    processes: int = 1,
    results: bool = False,
    computing: bool = False,
    default_log: bool = False,
) -> Generator[WorkerProcesses, None, None]:
    """With `computing`, each slot of the worker is a process. With `default_log`, it logs as its
    command does by default; else only warnings."""
    workers = WorkerProcesses(
        stage, concurrency, processes=processes, results=results, computing=computing, default_log=default_log
    )
    try:
        yield workers
    finally:
        workers.leave()


def _import_path(system: System) -> list[str]:
    """The adapters, and for ourselves the sources beside them."""
    return [str(ROOT), str(ROOT / "src")] if system.kind is Kind.OURS else [str(ROOT)]


def tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_tree(process: subprocess.Popen[str]) -> None:
    """How a system shuts down is not measured, so it is not
    waited for. Children may have sessions of their own."""
    members = tree(process)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    psutil.wait_procs(members, timeout=LEAVE_SECONDS)


def wait_for_marks(
    marks: Marks, first: int, count: int, seconds: float, workers: WorkerProcesses, *, poll: float = 0.005
) -> int:
    """How many of these tasks have run once all have, or `seconds` are over."""
    deadline = time.monotonic() + seconds
    while (done := marks.done(first, count)) < count and time.monotonic() < deadline:
        workers.check()
        time.sleep(poll)
    return done


def wait_for_first_mark(marks: Marks, first: int, count: int, seconds: float, workers: WorkerProcesses) -> None:
    deadline = time.monotonic() + seconds
    while not marks.done(first, count):
        workers.check()
        if time.monotonic() > deadline:
            raise SessionFailed(f"no task ran within {seconds:g} s of the worker's start")
        time.sleep(0.002)


def last_line(log: Path) -> str:
    """The end of what a process wrote before it gave up."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
