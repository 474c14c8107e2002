"""Functions that declare `Process` run in child processes of the worker."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from docket import (
    CurrentWorker,
    Depends,
    Docket,
    ExecutionCancelled,
    ExecutionState,
    Process,
    ProcessLost,
    TaskFailed,
    Unserializable,
    Worker,
)
from docket.codec.keyring import Keyring
from docket.worker.children.child_process import ChildProcess
from docket.worker.children.child_runs import ChildCall
from tests.nodes import keys_like
from tests.running import run_with_defaults, worker_at_work
from tests.spans import context_of
from tests.waiting import WAIT_LIMIT, eventually, eventually_blocking, reaches

from . import process_tasks as tasks

MIB = 1024**2


async def result_of(docket: Docket, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    execution = await docket.add(function)(*args)
    await run_with_defaults(docket, **options)
    return await execution.get_result(timeout=WAIT_LIMIT)


def children() -> list[psutil.Process]:
    """All child processes of this process, zombies included."""
    return psutil.Process().children()


def command(process: psutil.Process) -> str:
    """How it was started; "gone" if it has ended by now."""
    try:
        return "zombie" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return "zombie"
    except psutil.NoSuchProcess:
        return "gone"


def ours() -> list[str]:
    """The child processes that workers have started, and zombies."""
    commands = [command(child) for child in children()]
    return [found for found in commands if "docket.child" in found or found == "zombie"]


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


# Where functions run


async def test_a_function_runs_in_a_warm_child(docket: Docket) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        results = [await (await docket.add(tasks.where)(n)).get_result(timeout=WAIT_LIMIT) for n in range(3)]
    assert [(number, is_main) for number, _, is_main in results] == [(0, True), (1, True), (2, True)]
    pids = {pid for _, pid, _ in results}
    assert len(pids) == 1
    assert pids != {os.getpid()}
    await eventually(lambda: not ours(), "the child has ended", seen=ours)


async def test_an_async_function_may_run_in_a_child(docket: Docket) -> None:
    number, pid = await result_of(docket, tasks.async_where, 5)
    assert (number, pid != os.getpid()) == (5, True)


async def test_at_most_so_many_children_run_at_a_time(docket: Docket) -> None:
    executions = [await docket.add(tasks.where)(number) for number in range(8)]
    await run_with_defaults(docket, cpu_processes=2)
    results = [await execution.get_result(timeout=WAIT_LIMIT) for execution in executions]
    assert [number for number, _, _ in results] == list(range(8))
    assert len({pid for _, pid, _ in results}) <= 2


async def test_a_large_argument_and_a_large_result_travel(docket: Docket) -> None:
    data = bytes(range(256)) * 8192
    assert await result_of(docket, tasks.opens_large, data) == data[::-1]


async def test_signed_calls_and_results_travel(url: str) -> None:
    keyring = Keyring({"k1": os.urandom(32)})
    async with Docket("sealed", url, signing=keyring) as docket:
        assert (await result_of(docket, tasks.where, 5))[0] == 5


async def test_encrypted_calls_results_and_errors_travel(url: str) -> None:
    """Nothing of them is readable on the server, and the child has the keys."""
    async with Docket("hidden", url, signing=Keyring({"k1": os.urandom(32)}), encrypt=True) as docket:
        stored: list[Any] = []

        async def read_all() -> None:
            client = docket.server.client
            stored.append(await client.hgetall(docket.keys.tasks))
            stored.extend([await client.get(name) for name in await keys_like(docket, f"{docket.prefix}:runs:=*")])

        async with worker_at_work(docket, cpu_processes=1):
            kept = await docket.add(tasks.keeps_secret)("swordfish")
            await read_all()
            assert await kept.get_result(timeout=WAIT_LIMIT) == "kept swordfish"
            lost = await docket.add(tasks.loses_secret)("swordfish")
            with pytest.raises(LookupError, match="lost swordfish") as raised:
                await lost.get_result(timeout=WAIT_LIMIT)
            await read_all()
        await lost.sync()
    assert "in loses_secret" in raised.value.__notes__[0]
    assert lost.error == "LookupError (its text is encrypted)"
    assert stored[-1] is not None
    for hidden in ("swordfish", "loses_secret.py", "Traceback"):
        assert hidden not in repr(stored)


async def test_a_library_that_does_not_survive_a_fork_works(docket: Docket) -> None:
    assert await result_of(docket, tasks.uses_library) is True


# What a function can use


async def test_dependencies_are_resolved_in_the_child(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        first = await (await docket.add(tasks.depends, key="a")(1)).get_result(timeout=WAIT_LIMIT)
        second = await (await docket.add(tasks.depends, key="b")(2)).get_result(timeout=WAIT_LIMIT)
    assert first == {"here": True, "key": "a", "tenant": "acme", "shared": [1], "attempt": 1, "closed": 0}
    assert second == {"here": True, "key": "b", "tenant": "acme", "shared": [1, 2], "attempt": 1, "closed": 1}
    record = next(record for record in caplog.records if record.message == "number 1")
    assert record.name == "docket.task.depends"
    assert vars(record)["docket.key"] == "a"


async def test_log_records_of_the_child_reach_the_handlers_of_the_worker(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shop")
    await result_of(docket, tasks.logs)
    records = {record.message: record for record in caplog.records if record.name == "shop"}
    assert set(records) == {"from the child", "caught"}
    assert vars(records["from the child"])["order"] == 7
    assert records["from the child"].process != os.getpid()
    assert "ZeroDivisionError" in (records["caught"].exc_text or "")


async def test_progress_of_the_child_is_written(docket: Docket) -> None:
    execution = await docket.add(tasks.reports)(25)
    await run_with_defaults(docket)
    assert await execution.get_result(timeout=WAIT_LIMIT) == 25
    await execution.sync()
    progress = execution.progress
    assert (progress.current, progress.total, progress.message) == (25, 25, "done")


async def test_progress_of_threads_of_the_function_is_written(docket: Docket) -> None:
    execution = await docket.add(tasks.reports_from_threads)(20)
    await run_with_defaults(docket)
    await execution.get_result(timeout=WAIT_LIMIT)
    await execution.progress.sync()
    assert execution.progress.current == 20


async def test_a_timeout_can_be_extended_from_the_child(docket: Docket) -> None:
    assert await result_of(docket, tasks.extends) == (True, True)


async def test_a_function_in_a_child_can_schedule_tasks(docket: Docket) -> None:
    docket.register(tasks.nothing)
    execution = await docket.add(tasks.schedules, key="first")()
    await run_with_defaults(docket)
    assert await execution.get_result(timeout=WAIT_LIMIT) == "first-next"
    added = await docket.get_execution("first-next")
    assert added is not None
    assert added.state is ExecutionState.COMPLETED


async def test_a_function_in_a_child_can_perpetuate_itself(docket: Docket, tmp_path: Path) -> None:
    await docket.add(tasks.perpetuates)(1, str(tmp_path / "numbers"))
    await run_with_defaults(docket)
    assert (tmp_path / "numbers").read_text() == "1 2 3 "


async def test_a_function_in_a_child_can_force_a_retry(docket: Docket) -> None:
    assert await result_of(docket, tasks.forces_retry) == 2


async def test_the_trace_of_a_run_goes_on_in_the_child(docket: Docket, spans: InMemorySpanExporter) -> None:
    trace_id = await result_of(docket, tasks.traced)
    assert trace_id in {format(context_of(span).trace_id, "032x") for span in spans.get_finished_spans()}


# Failures


async def test_an_exception_comes_back_with_its_traceback(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="no good") as raised:
        await result_of(docket, tasks.fails)
    assert "process_tasks.py" in caplog.text
    (note,) = raised.value.__notes__
    frames = [line.rpartition(" in ")[2] for line in note.splitlines() if line.startswith("  File ")]
    assert frames == ["fails"]


async def test_a_result_that_cannot_be_stored_fails_its_task(docket: Docket) -> None:
    with pytest.raises(Unserializable, match="lock"):
        await result_of(docket, tasks.unpicklable)


async def test_an_exception_that_cannot_be_pickled_comes_back_as_its_text(docket: Docket) -> None:
    with pytest.raises(Exception, match="OddError: a b") as raised:
        await result_of(docket, tasks.raises_oddly)
    assert "in raises_oddly" in raised.value.__notes__[0]


@pytest.mark.parametrize("raise_in", [tasks.raises_oddly, tasks.raises_oddly_in_thread], ids=["child", "thread"])
async def test_the_record_and_the_letter_name_the_error_itself(docket: Docket, raise_in: Any) -> None:
    """Also if it cannot be pickled, so that callers get another exception."""
    execution = await docket.add(raise_in, key="odd")()
    await run_with_defaults(docket)
    await execution.sync()
    assert execution.error == "OddError: a b"
    letter = await docket.dead.get("odd")
    assert letter is not None
    assert (letter.error, letter.text) == (f"{tasks.__name__}.OddError", "OddError: a b")


async def test_the_record_names_a_system_exit_of_the_child(docket: Docket) -> None:
    execution = await docket.add(tasks.leaves)()
    await run_with_defaults(docket)
    await execution.sync()
    assert execution.error == "SystemExit: 3"


async def test_the_record_names_an_error_that_the_worker_cannot_read(docket: Docket, tmp_path: Path) -> None:
    """Its class is in a module that only the child can import."""
    (tmp_path / "only_in_child.py").write_text("class Unknown(Exception): ...\n")
    execution = await docket.add(tasks.raises_unknown)(str(tmp_path))
    await run_with_defaults(docket)
    await execution.sync()
    assert execution.error == "Unknown: a"
    with pytest.raises(TaskFailed, match="Unknown: a"):
        await execution.get_result(timeout=WAIT_LIMIT)


@pytest.mark.parametrize(
    ("function", "lost_signal", "exit_code"),
    [
        (tasks.segfaults, signal.SIGSEGV, None),
        (tasks.kills_itself, signal.SIGKILL, None),
        (tasks.exits, None, 3),
    ],
    ids=["segfault", "SIGKILL", "os._exit"],
)
async def test_a_child_that_dies_fails_only_its_own_run(
    docket: Docket, function: Any, lost_signal: int | None, exit_code: int | None
) -> None:
    async with worker_at_work(docket, cpu_processes=2) as worker:
        name = worker.id
        lost = await docket.add(function)()
        neighbours = [await docket.add(tasks.where)(number) for number in range(4)]
        with pytest.raises(ProcessLost) as raised:
            await lost.get_result(timeout=WAIT_LIMIT)
        assert (raised.value.signal, raised.value.exit_code) == (lost_signal, exit_code)
        assert (raised.value.peak_memory or 0) > 10 * MIB
        assert function.__name__ in str(raised.value)
        for number, neighbour in enumerate(neighbours):
            assert (await neighbour.get_result(timeout=WAIT_LIMIT))[0] == number
        assert (worker.id, worker.health_problem()) == (name, None)
    await eventually(lambda: not ours(), "no child and no zombie is left", seen=ours)


async def test_a_child_that_dies_is_retried_like_any_failure(docket: Docket, tmp_path: Path) -> None:
    assert await result_of(docket, tasks.segfaults_once, str(tmp_path / "died")) == 2


async def test_an_idle_child_that_dies_is_not_missed(docket: Docket) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        _, pid, _ = await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not is_alive(pid), "the child is dead")
        _, other, _ = await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT)
        assert other != pid


async def test_a_run_whose_child_dies_before_it_begins_goes_to_another_child(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has not noticed the death yet when it sends the run."""
    send, killed = ChildProcess.send, list[int]()

    def kill_and_send(child: ChildProcess, call: ChildCall) -> None:
        if not killed:
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)
        send(child, call)

    monkeypatch.setattr(ChildProcess, "send", kill_and_send)
    async with worker_at_work(docket, cpu_processes=1):
        _, pid, _ = await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT)
        assert [pid] != killed
        assert len(killed) == 1


async def test_an_allocation_above_the_cap_is_a_memory_error(docket: Docket) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        with pytest.raises(MemoryError):
            await (await docket.add(tasks.allocates)(4096 * MIB)).get_result(timeout=WAIT_LIMIT)
        # The cap is that of the run: the child lives, and the next run has all of its memory.
        assert await (await docket.add(tasks.allocates)(100 * MIB)).get_result(timeout=WAIT_LIMIT) == 100 * MIB


async def test_a_function_that_writes_into_the_pipe_fails_only_its_own_run(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        with pytest.raises(ProcessLost, match="while it ran writes_garbage"):
            await (await docket.add(tasks.writes_garbage)()).get_result(timeout=WAIT_LIMIT)
        assert (await (await docket.add(tasks.where)(1)).get_result(timeout=WAIT_LIMIT))[0] == 1
    assert [line for line in caplog.messages if "sent what is not a message" in line]
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_the_memory_of_a_lost_child_is_its_own_and_not_that_of_its_worker(docket: Docket) -> None:
    large = b"x" * 600 * MIB
    del large
    with pytest.raises(ProcessLost) as lost:
        await result_of(docket, tasks.exits)
    assert lost.value.peak_memory is not None
    assert lost.value.peak_memory < 400 * MIB


# Time-outs and cancels


async def test_a_function_that_raises_cancelled_error_ends_cancelled(docket: Docket) -> None:
    with pytest.raises(ExecutionCancelled):
        await result_of(docket, tasks.cancels_itself)


async def pid_in(file: Path) -> int:
    return int(await eventually(lambda: file.exists() and file.read_text(), "the function has begun"))


async def test_a_timeout_ends_the_function(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        _, child, _ = await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT)
        begun = tmp_path / "pid"
        # On a busy machine the time may be over before the child has begun.
        while not (begun.exists() and begun.read_text()):
            execution = await docket.add(tasks.spins)(str(begun))
            with pytest.raises(TimeoutError):
                await execution.get_result(timeout=WAIT_LIMIT)
        assert not is_alive(int(begun.read_text()))
        assert not is_alive(child)
        assert (await (await docket.add(tasks.where)(1)).get_result(timeout=WAIT_LIMIT))[0] == 1


async def test_a_cancel_kills_a_function_that_ignores_sigterm(docket: Docket, tmp_path: Path) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        execution = await docket.add(tasks.spins_deaf)(str(tmp_path / "pid"))
        pid = await pid_in(tmp_path / "pid")
        await docket.cancel(execution.key)
        with pytest.raises(ExecutionCancelled):
            await execution.get_result(timeout=WAIT_LIMIT)
        assert not is_alive(pid)


@pytest.mark.parametrize("function", [tasks.cleans_up, tasks.async_cleans_up])
async def test_a_cancelled_function_may_clean_up(docket: Docket, function: Any, tmp_path: Path) -> None:
    file = tmp_path / "state"
    async with worker_at_work(docket, cpu_processes=1):
        execution = await docket.add(function)(str(file))
        await eventually(lambda: file.exists() and file.read_text() == "begun", "the function has begun")
        await docket.cancel(execution.key)
        with pytest.raises(ExecutionCancelled):
            await execution.get_result(timeout=WAIT_LIMIT)
        assert file.read_text() == "clean"


async def test_a_signal_that_is_not_from_the_worker_is_ignored(docket: Docket, tmp_path: Path) -> None:
    """As when a service manager sends SIGTERM to every process of a service."""
    async with worker_at_work(docket, cpu_processes=1):
        file = tmp_path / "state"

        def lines() -> int:
            return file.read_text().count("\n") if file.exists() else 0

        execution = await docket.add(tasks.counts_and_cleans_up)(str(file))
        await eventually(lines, "the function has begun")
        pids = [child.pid for child in children() if "docket.child" in command(child)]
        assert len(pids) == 1
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pids[0], number)
        # A signal reaches a process before its next line of code, and so before the third.
        before = lines()
        await eventually(lambda: lines() >= before + 3, "the function goes on", seen=file.read_text)
        await execution.sync()
        assert execution.state is ExecutionState.RUNNING
        await docket.cancel(execution.key)
        await reaches(execution, ExecutionState.CANCELLED)
        assert file.read_text() == "clean"


async def test_a_timer_that_a_function_leaves_behind_does_not_hit_the_next_run(docket: Docket) -> None:
    """SIGALRM would kill it, or run the handler of another function in it."""
    async with worker_at_work(docket, cpu_processes=1):
        pid = await (await docket.add(tasks.leaves_timer)()).get_result(timeout=WAIT_LIMIT)
        found = await (await docket.add(tasks.finds_timer)()).get_result(timeout=WAIT_LIMIT)
        assert found == (pid, False)


async def test_a_worker_that_stops_ends_the_function_and_requeues_the_task(docket: Docket, tmp_path: Path) -> None:
    async with Worker(docket, grace_period=timedelta(0)) as worker:
        run = asyncio.create_task(worker.run_forever())
        execution = await docket.add(tasks.cleans_up)(str(tmp_path / "state"))
        await eventually(lambda: (tmp_path / "state").exists(), "the function has begun")
        worker.stop()
        await run
    await reaches(execution, ExecutionState.QUEUED)
    assert ours() == []
    assert (tmp_path / "state").read_text() == "clean"


@pytest.mark.faults
async def test_a_dozen_timeouts_in_a_row_leave_nothing_behind(docket: Docket, tmp_path: Path) -> None:
    await many_timeouts(docket, tmp_path, 12)


async def many_timeouts(docket: Docket, folder: Path, count: int) -> None:
    async with worker_at_work(docket, cpu_processes=2, concurrency=4) as worker:
        await (await docket.add(tasks.where)()).get_result(timeout=WAIT_LIMIT)
        before = descriptors()
        for start in range(0, count, 10):
            batch = [await docket.add(tasks.spins)(str(folder / str(start + n))) for n in range(min(10, count - start))]
            for execution in batch:
                with pytest.raises(TimeoutError):
                    await execution.get_result(timeout=WAIT_LIMIT)
        # The worker is the same, it works, and it has the two children that it may have.
        assert worker.health_problem() is None
        assert (await (await docket.add(tasks.where)(7)).get_result(timeout=WAIT_LIMIT))[0] == 7
        await eventually(lambda: len(ours()) <= 2 and "zombie" not in ours(), "two children are left", seen=ours)
        # A second child has descriptors, too: its pipe, its tickets (two), its memory.
        assert descriptors() <= before + 4
    await eventually(lambda: not ours(), "no child is left", seen=ours)


# Recycling


async def test_a_child_is_replaced_after_so_many_runs(docket: Docket) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        pids = [await (await docket.add(tasks.worn_out)()).get_result(timeout=WAIT_LIMIT) for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_a_child_that_keeps_too_much_memory_is_replaced(docket: Docket) -> None:
    async with worker_at_work(docket, cpu_processes=1):
        sizes = [1, 1, 130 * MIB, 1]
        pids = [await (await docket.add(tasks.hoards)(size)).get_result(timeout=WAIT_LIMIT) for size in sizes]
    assert pids[0] == pids[1] == pids[2] != pids[3]


# Mistakes


def of_main(process: Process = Process()) -> None: ...


of_main.__module__ = "__main__"


class Service:
    def work(self, process: Process = Process()) -> None: ...


def wants_worker(worker: Worker = CurrentWorker(), process: Process = Process()) -> None: ...


def get_worker(worker: Worker = CurrentWorker()) -> Worker:
    return worker


def wants_worker_inside(given: Worker = Depends(get_worker), process: Process = Process()) -> None: ...


def local() -> Callable[..., None]:
    def inside(process: Process = Process()) -> None: ...

    return inside


def two(one: Process = Process(), other: Process = Process()) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda process=Process(): None, "a lambda"),
        (of_main, "functions of the main program"),
        (local(), "a function inside a function"),
        (Service().work, "methods, partials"),
        (functools.partial(tasks.where, 1), "methods, partials"),
        (wants_worker, "'worker' is CurrentWorker"),
        (wants_worker_inside, "'worker' is CurrentWorker"),
        (two, "(?i)only one Process"),
    ],
    ids=["lambda", "__main__", "local", "method", "partial", "worker", "worker inside", "two"],
)
def test_a_function_that_a_child_cannot_run_is_refused(docket: Docket, function: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        docket.register(function, names=["task"])
    assert "task" not in docket.tasks


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Process(memory="63MiB"), "Python itself needs more; give 64 MiB"),
        (lambda: Process(memory="much"), "'much' is not a size"),
        (lambda: Process(memory="5 apples"), "'5 apples' is not a size"),
        (lambda: Process(recycle=0), "it must be at least 1"),
        (lambda: Worker(Docket("d", "memory://d"), cpu_processes=0), "cpu_processes=0"),
    ],
)
def test_a_bad_value_is_refused_where_it_is_written(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


async def test_arguments_that_cannot_travel_are_refused_by_add(docket: Docket) -> None:
    with pytest.raises(Unserializable):
        await docket.add(tasks.where)(sys._getframe())  # type: ignore[arg-type] # pyright: ignore


@pytest.mark.parametrize(
    ("written", "size"), [("512MiB", 512 * MIB), ("1gb", 10**9), ("1.5 GiB", 1536 * MIB), (64 * MIB, 64 * MIB)]
)
def test_sizes_can_be_written_in_units(written: str | int, size: int) -> None:
    assert Process(memory=written).memory == size


ORPHAN = """
import asyncio, sys
from docket import Docket, Worker
from tests.worker import process_tasks

async def main() -> None:
    async with Docket("orphan", "memory://orphan") as docket:
        await docket.add(getattr(process_tasks, sys.argv[1]))(sys.argv[2])
        async with Worker(docket, cpu_processes=1) as worker:
            await worker.run_forever()

asyncio.run(main())
"""


@pytest.mark.faults
@pytest.mark.parametrize("function", ["spins_deaf", "computes_in_c", "notes_pid"])
def test_children_end_with_a_worker_that_is_killed(tmp_path: Path, function: str) -> None:
    """A child that ignores signals, one whose thread does not return to Python, and one that has
    nothing to do any more."""
    file = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, function, str(file)], cwd=Path(__file__).parents[2])
    try:
        pid = int(eventually_blocking(lambda: file.exists() and file.read_text(), "the function has begun") or 0)
        assert is_alive(pid)
    finally:
        parent.kill()
        parent.wait()
    eventually_blocking(lambda: not is_alive(pid), "the child is dead")


# A child imports this while it starts, which never ends.
SLOW_IMPORT = """
import os, time
with open({file!r}, "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.faults
def test_a_child_that_is_starting_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    (tmp_path / "uncalled_for.py").write_text(SLOW_IMPORT.format(file=str(file)))
    # The worker itself has imported the real one before.
    program = ORPHAN.replace("async def main", f"sys.path.insert(0, {str(tmp_path)!r})\n\nasync def main", 1)
    command = [sys.executable, "-c", program, "spins_deaf", str(tmp_path / "run")]
    parent = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        pid = int(eventually_blocking(lambda: file.exists() and file.read_text(), "the child starts") or 0)
        assert is_alive(pid)
    finally:
        parent.kill()
        parent.wait()
    eventually_blocking(lambda: not is_alive(pid), "the child is dead")
