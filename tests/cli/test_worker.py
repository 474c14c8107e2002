"""`docket worker` as a process: what it says, what it does, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from docket.testing.servers import ServerProcess
from tests.waiting import eventually_blocking

from .conftest import Command, Start, unused_port
from .processes import Process, Terminal, surroundings

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)


def get(port: int, path: str = "/") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def stop(worker: Process) -> None:
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0, worker.output


def test_a_worker_says_what_it_is_and_runs_what_it_finds(
    any_url: str, shop: str, start: Start, docket_command: Command
) -> None:
    docket_command("tasks", "trace", "hello there", "--url", any_url)
    worker = start("worker", "--url", any_url, "--tasks", shop, "--name", "Ada", "--concurrency", "7")
    worker.says("hello there")
    assert "worker 'Ada' works on docket 'docket' at " in worker.output
    assert "concurrency 7" in worker.output
    assert "docket.worker: Starting worker 'Ada' with the following tasks:" in worker.output
    assert any_url in worker.output
    assert "(valkey " in worker.output or "(redis " in worker.output
    assert "* ship(order: str, weight: float = 1.5, ...)" in worker.output
    assert "* trace(message: str, ...)" in worker.output
    stop(worker)


def test_memory_is_good_enough_for_a_worker(start: Start) -> None:
    worker = start("worker", "--url", "memory://", "--until-finished")
    assert worker.ends() == 0, worker.output
    assert "at memory:// (valkey" in worker.output


def test_a_password_is_not_shown(redis_server: ServerProcess, start: Start) -> None:
    worker = start("worker", "--url", f"redis://default:s3cret@localhost:{redis_server.port}/0", "--until-finished")
    worker.ends()
    assert "redis://default:***@localhost" in worker.output
    assert "s3cret" not in worker.output


def test_until_finished_does_all_there_is_and_ends(url: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "trace", "soon", "--url", url, "--delay", "500ms")
    worker = start("worker", "--url", url, "--until-finished")
    assert worker.ends() == 0
    assert "soon" in worker.output
    assert "1 scheduled" not in docket_command("snapshot", "--url", url).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_a_worker_finishes_what_it_runs(
    number: signal.Signals, url: str, start: Start, docket_command: Command
) -> None:
    docket_command("tasks", "sleep", "1.5", "--url", url, "--key", "nap")
    docket_command("tasks", "trace", "not before the next worker", "--url", url, "--key", "next", "--delay", "1s")
    worker = start("worker", "--url", url)
    worker.says("{nap}")
    worker.send(number)
    assert worker.ends() == 0
    assert "Traceback" not in worker.output
    assert docket_command("watch", "nap", "--url", url).exit_code == 0


def test_told_twice_a_worker_requeues_what_it_runs(url: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "sleep", "60", "--url", url, "--key", "nap")
    worker = start("worker", "--url", url)
    worker.says("{nap}")
    worker.send(signal.SIGTERM)
    worker.says("a second signal requeues them")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0
    found = json.loads(docket_command("snapshot", "--url", url, "--json").stdout)
    assert [(task["key"], task["state"]) for task in found["tasks"]] == [("nap", "queued")]


def test_past_the_grace_period_what_still_runs_is_requeued(url: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "sleep", "60", "--url", url, "--key", "nap")
    worker = start("worker", "--url", url, "--grace-period", "200ms")
    worker.says("{nap}")
    stop(worker)
    assert "1 queued" in docket_command("snapshot", "--url", url).stdout


def test_a_signal_while_starting_is_no_error(folder: Path, start: Start) -> None:
    (folder / "slow.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        worker = start("worker", "--url", "memory://", "--tasks", "slow:tasks")
        worker.says("importing")
        worker.send(number)
        assert worker.ends() == code, worker.output
        assert "Traceback" not in worker.output


def test_a_failed_task_is_logged_with_its_traceback(url: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "fail", "no way", "--url", url)
    worker = start("worker", "--url", url, "--until-finished")
    assert worker.ends() == 0
    assert "RuntimeError: no way" in worker.output


def test_log_lines_for_programs_are_objects(url: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "fail", "no way", "--url", url, "--key", "failing")
    worker = start("worker", "--url", url, "--until-finished", "--logging-format", "json", "--name", "Ada")
    assert worker.ends() == 0
    records = [json.loads(line) for line in worker.lines]
    messages = [record["message"] for record in records]
    start_of_list = messages.index("Starting worker 'Ada' with the following tasks:")
    assert messages[start_of_list + 1] == "* trace(message: str, ...)"
    introduction = next(record for record in records if "concurrency" in record)
    assert (introduction["docket.worker"], introduction["concurrency"]) == ("Ada", 10)
    failure = next(record for record in records if "exception" in record)
    assert failure["level"] == "ERROR"
    assert failure["docket.key"] == "failing"
    assert "RuntimeError: no way" in failure["exception"]


def test_the_logging_level_silences_the_rest(url: str, shop: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "trace", "hello", "--url", url)
    worker = start("worker", "--url", url, "--tasks", shop, "--until-finished", "--logging-level", "error")
    assert worker.ends() == 0
    assert worker.output == ""


def test_on_a_terminal_the_introduction_is_a_panel(url: str) -> None:
    worker = Terminal("worker", "--url", url, "--name", "Ada")
    try:
        worker.shows("╭─ docket")
        worker.shows("╯")
        worker.shows("Starting worker 'Ada' with the following tasks:")
        worker.shows("* trace(message: str, ...)")
        worker.types(b"\x03")
        assert worker.ends() == 0
        assert "Traceback" not in worker.output
    finally:
        worker.close()


def test_health_and_metrics_are_served(url: str, start: Start, port: int, docket_command: Command) -> None:
    metrics = port + 1
    worker = start("worker", "--url", url, "--healthcheck-port", str(port), "--metrics-port", str(metrics))
    eventually_blocking(lambda: get(port)[0] == 200, "the worker is well")
    docket_command("tasks", "trace", "hello", "--url", url)
    worker.says("hello")
    eventually_blocking(lambda: "docket_tasks_started" in get(metrics, "/metrics")[1], "the task is counted")
    stop(worker)
    assert get(port)[0] == 0


def test_options_come_from_the_environment(url: str, shop: str, start: Start) -> None:
    worker = start(
        "worker",
        DOCKET_URL=url,
        DOCKET_NAME="by-environment",
        DOCKET_TASKS=f"{shop} docket.tasks:standard_tasks",
        DOCKET_WORKER_NAME="Grace",
        DOCKET_WORKER_CONCURRENCY="3",
        DOCKET_WORKER_UNTIL_FINISHED="true",
        DOCKET_WORKER_REDELIVERY_TIMEOUT="1:30",
    )
    assert worker.ends() == 0, worker.output
    assert "worker 'Grace' works on docket 'by-environment' at " in worker.output
    assert "concurrency 3" in worker.output
    assert "* ship(" in worker.output


def test_an_empty_text_for_dependencies_or_fallback_means_none(url: str, start: Start) -> None:
    worker = start("worker", "--url", url, "--until-finished", "--dependencies", "", "--fallback-task", "")
    assert worker.ends() == 0, worker.output


def test_the_default_fallback_can_be_named(url: str, start: Start) -> None:
    add_mystery(url, "key")
    worker = start("worker", "--url", url, "--fallback-task", "docket.worker:default_fallback_task", "--until-finished")
    assert worker.ends() == 0, worker.output
    assert "docket.worker: Unknown task '" in worker.output


def test_tasks_nobody_knows_go_to_the_fallback(url: str, shop: str, start: Start, docket_command: Command) -> None:
    add_mystery(url, "key")
    worker = start("worker", "--url", url, "--fallback-task", "shop:unknown", "--until-finished")
    assert worker.ends() == 0
    assert "fallback was called" in worker.output


def add_mystery(url: str, key: str) -> None:
    other = Path(__file__).with_name("adding.py")
    subprocess.run([sys.executable, str(other), url, "mystery", key], check=True, env=surroundings())


def test_a_task_that_no_worker_knows_waits_and_is_shown(url: str, start: Start, docket_command: Command) -> None:
    add_mystery(url, "key")
    worker = start("worker", "--url", url)
    worker.says("Unknown task 'mystery': no live worker knows it")
    stop(worker)
    assert worker.output.count("without --tasks this worker knows only docket's built-in tasks") == 1
    shown = docket_command("snapshot", "--url", url)
    assert "1 queued (1 with an unknown function)" in shown.stdout
    assert "Unknown function 'mystery': 1 task waiting, the first since" in shown.stdout
    found = json.loads(docket_command("snapshot", "--url", url, "--json").stdout)
    assert found["counts"]["unknown_function"] == 1
    assert [(f["name"], f["tasks"], f["known"]) for f in found["unknown_functions"]] == [("mystery", 1, False)]
    assert "unknown 1 (mystery)" in docket_command("top", "--url", url, "--count", "1").stdout
    (look,) = docket_command("top", "--url", url, "--count", "1", "--json").stdout.splitlines()
    assert json.loads(look)["unknown_functions"] == ["mystery"]


def test_a_worker_that_has_to_end_fails_a_task_that_no_worker_knows(url: str, start: Start) -> None:
    add_mystery(url, "key")
    worker = start("worker", "--url", url, "--until-finished")
    assert worker.ends() == 0
    assert "Unknown task 'mystery'" in worker.output


def test_dependencies_are_wrapped_round_every_task(
    url: str, folder: Path, start: Start, docket_command: Command
) -> None:
    (folder / "around.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from docket import Depends\n"
        "@asynccontextmanager\n"
        "async def around():\n    print('before', flush=True)\n    yield\n    print('after', flush=True)\n"
        "named, listed, wrong = {'around': Depends(around)}, [Depends(around)], [1]\n"
    )
    for which in ("named", "listed"):
        docket_command("tasks", "trace", "hello", "--url", url)
        worker = start("worker", "--url", url, "--dependencies", f"around:{which}", "--until-finished")
        assert worker.ends() == 0
        assert worker.output.index("before") < worker.output.index("trace: hello") < worker.output.index("after")
    worker = start("worker", "--url", url, "--dependencies", "around:wrong")
    assert worker.ends() == 2
    assert "which is not a dependency" in worker.output


@pytest.mark.parametrize("flag", ["--uvloop", "--no-uvloop"])
def test_either_event_loop_will_do(flag: str, url: str, folder: Path, start: Start, docket_command: Command) -> None:
    if flag == "--uvloop":
        pytest.importorskip("uvloop")
    (folder / "loops.py").write_text(
        "import asyncio\n"
        "async def which() -> None:\n    print('on', type(asyncio.get_running_loop()).__module__, flush=True)\n"
        "tasks = [which]\n"
    )
    other = Path(__file__).with_name("adding.py")
    subprocess.run([sys.executable, str(other), url, "which", "key"], check=True, env=surroundings())
    worker = start("worker", "--url", url, "--tasks", "loops:tasks", "--until-finished", flag)
    assert worker.ends() == 0
    assert f"on {'uvloop' if flag == '--uvloop' else 'asyncio'}" in worker.output


def test_the_worker_of_python_m_docket_does_not_take_the_users_docket_py(folder: Path, start: Start) -> None:
    (folder / "docket.py").write_text("raise RuntimeError('the wrong one')\n")
    assert start("worker", "--url", "memory://", "--until-finished").ends() == 0


@pytest.mark.parametrize("count", ["1", "2"])
def test_health_and_metrics_listen_on_the_named_address_only(url: str, start: Start, port: int, count: str) -> None:
    worker = start(
        *("worker", "--url", url, "--processes", count),
        *("--healthcheck-host", "127.0.0.1", "--healthcheck-port", str(port)),
        *("--metrics-host", "127.0.0.1", "--metrics-port", str(unused_port())),
    )
    worker.says("Starting worker")
    process = psutil.Process(worker.pid)
    listening = {
        connection.laddr.ip
        for one in (process, *process.children())
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    stop(worker)
