"""`docket worker --processes`: processes that die come back, and signals reach all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from docket import Docket
from docket.testing.servers import ServerProcess
from tests.waiting import eventually, eventually_blocking

from .conftest import Command, Start
from .processes import Process, Terminal, surroundings
from .test_worker import get

# Processes take long to start on a busy machine.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

TWO = ("--processes", "2", "--name", "pair")


async def names(docket: Docket) -> set[str]:
    return {worker.name for worker in await docket.workers()}


def workers(url: str) -> set[str]:
    async def ask() -> set[str]:
        async with Docket("docket", url) as docket:
            return await names(docket)

    return asyncio.run(ask())


def those_work(url: str, wanted: set[str], supervisor: Process) -> None:
    """Returns when all of these workers are registered."""

    async def wait() -> None:
        async def present() -> bool:
            assert supervisor.exit_code is None, supervisor.output
            return wanted <= await names(docket)

        async with Docket("docket", url) as docket:
            await eventually(present, f"{wanted} work", seen=lambda: supervisor.output)

    asyncio.run(wait())


def both_work(url: str, supervisor: Process) -> None:
    those_work(url, {"pair-1", "pair-2"}, supervisor)


def runs(process: psutil.Process) -> bool:
    """Whether it runs. Where nobody collects its exit
    code, a process that has ended is still listed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_several_processes_share_the_work_and_one_signal_drains_all(
    any_url: str, start: Start, docket_command: Command
) -> None:
    supervisor = start("worker", "--url", any_url, *TWO, "--concurrency", "1")
    both_work(any_url, supervisor)
    for number in range(2):
        docket_command("tasks", "sleep", "1.5", "--url", any_url, "--key", f"nap-{number}")
    eventually_blocking(lambda: supervisor.output.count("{nap-") == 2, "each process has one")
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0, supervisor.output
    for number in range(2):
        assert docket_command("watch", f"nap-{number}", "--url", any_url).exit_code == 0
    assert workers(any_url) == set()
    assert supervisor.output.count("works on docket") == 1, "one introduction is enough"


def test_every_line_names_its_worker_and_starts_and_restarts_are_logged(
    url: str, start: Start, docket_command: Command
) -> None:
    supervisor = start("worker", "--url", url, *TWO, "--logging-format", "plain")
    both_work(url, supervisor)
    for worker in ("pair-1", "pair-2"):
        supervisor.says(f"docket.supervisor: worker {worker} started (process ")
    docket_command("tasks", "trace", "hello", "--url", url)
    supervisor.says("docket.task.trace: hello")
    victim = next(child for child in supervisor.children() if "pair-2" in child.cmdline())
    victim.kill()
    supervisor.says("worker pair-2 ended (killed by SIGKILL); starting it again")
    supervisor.says("docket.supervisor: worker pair-2 started again (process ")
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0, supervisor.output
    for line in supervisor.lines:
        assert " docket.supervisor: " in line or " [pair-1] " in line or " [pair-2] " in line
    assert supervisor.output.count("[pair-2] docket.worker: Starting worker 'pair-2' with the following tasks:") == 2


def test_every_object_in_the_log_of_several_processes_names_its_worker(url: str, start: Start) -> None:
    supervisor = start("worker", "--url", url, *TWO, "--logging-format", "json")
    both_work(url, supervisor)
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0, supervisor.output
    records = [json.loads(line) for line in supervisor.lines]
    workers = [record.get("docket.worker") for record in records if record["name"] != "docket.supervisor"]
    assert set(workers) == {"pair-1", "pair-2"}


def test_a_process_that_is_killed_comes_back_and_its_task_goes_on(
    url: str, start: Start, docket_command: Command
) -> None:
    supervisor = start("worker", "--url", url, *TWO, "--concurrency", "1")
    both_work(url, supervisor)
    docket_command("tasks", "sleep", "2", "--url", url, "--key", "nap")
    supervisor.says("{nap}")
    holder = docket_command("snapshot", "--url", url, "--json").stdout
    victim = next(
        c for c in supervisor.children() if f'"worker": "{c.cmdline()[c.cmdline().index("--name") + 1]}"' in holder
    )
    victim.kill()
    supervisor.says("killed by SIGKILL")
    both_work(url, supervisor)
    assert docket_command("watch", "nap", "--url", url, "--timeout", "40s").exit_code == 0
    assert victim.pid not in {child.pid for child in supervisor.children()}
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0


def test_one_health_port_answers_for_all(url: str, start: Start, port: int) -> None:
    supervisor = start("worker", "--url", url, *TWO, "--healthcheck-port", str(port))
    eventually_blocking(lambda: get(port)[0] == 200, "both are well")
    assert workers(url) == {"pair-1", "pair-2"}
    supervisor.children()[0].kill()
    eventually_blocking(lambda: get(port)[0] == 503, "one is missing")
    assert get(port)[1].startswith("pair-")
    eventually_blocking(lambda: get(port)[0] == 200, "it is back")
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0


def test_a_process_that_hangs_is_not_well(url: str, start: Start, port: int) -> None:
    supervisor = start("worker", "--url", url, *TWO, "--healthcheck-port", str(port))
    eventually_blocking(lambda: get(port)[0] == 200, "both are well")
    child = supervisor.children()[1]
    child.suspend()
    eventually_blocking(lambda: "no report for" in get(port)[1], "it is missed")
    child.resume()
    eventually_blocking(lambda: get(port)[0] == 200, "it is back")


def test_processes_stop_when_their_supervisor_is_killed(url: str, start: Start) -> None:
    supervisor = start("worker", "--url", url, *TWO)
    both_work(url, supervisor)
    children = supervisor.children()
    supervisor.send(signal.SIGKILL)
    supervisor.ends()
    try:
        eventually_blocking(lambda: not any(map(runs, children)), "they have noticed")
    finally:
        for child in children:
            if runs(child):
                child.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--url", "redis://localhost:1/0", "--wait", "0s"], 1, "Is the server running?"),
        (["--url", "{url}", "--tasks", "nowhere:tasks"], 2, "there is no module 'nowhere'"),
    ],
)
def test_what_keeps_processes_from_starting_is_said_once(
    arguments: list[str], code: int, words: str, url: str, start: Start
) -> None:
    supervisor = start("worker", *TWO, *(argument.format(url=url) for argument in arguments))
    assert supervisor.ends() == code
    assert supervisor.output.count("\n") == 1, supervisor.output
    assert words in supervisor.output


def test_the_password_is_on_no_command_line_but_the_users(redis_server: ServerProcess, start: Start) -> None:
    supervisor = start("worker", *TWO, DOCKET_URL=f"redis://default:s3cret@localhost:{redis_server.port}/0")
    eventually_blocking(lambda: len(supervisor.children()) == 2, "both run")
    for child in supervisor.children():
        assert "s3cret" not in " ".join(child.cmdline())
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0


def test_until_finished_ends_all(url: str, start: Start, docket_command: Command) -> None:
    for number in range(4):
        docket_command("tasks", "sleep", "0.2", "--url", url, "--key", f"nap-{number}")
    supervisor = start("worker", "--url", url, *TWO, "--until-finished")
    assert supervisor.ends() == 0, supervisor.output
    assert docket_command("watch", "nap-3", "--url", url).exit_code == 0


def test_ctrl_c_typed_once_is_one_signal_to_each_process(url: str, docket_command: Command) -> None:
    docket_command("tasks", "sleep", "2", "--url", url, "--key", "nap")
    terminal = Terminal("worker", "--url", url, *TWO)
    try:
        terminal.shows("{nap}")
        terminal.types(b"\x03")
        assert terminal.ends() == 0, terminal.output
        assert docket_command("watch", "nap", "--url", url, "--timeout", "1s").exit_code == 0, "the nap was finished"
    finally:
        terminal.close()


def test_told_twice_all_processes_requeue_what_they_run(url: str, start: Start, docket_command: Command) -> None:
    docket_command("tasks", "sleep", "3600", "--url", url, "--key", "nap")
    supervisor = start("worker", "--url", url, *TWO)
    supervisor.says("{nap}")
    both_work(url, supervisor)
    supervisor.send(signal.SIGTERM)
    # Said by the process that runs it, once the order has reached it.
    supervisor.says("Shutdown requested, finishing 1")
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0
    assert "1 queued" in docket_command("snapshot", "--url", url).stdout


def test_a_process_that_dies_again_and_again_is_started_with_growing_pauses(
    url: str, folder: Path, start: Start
) -> None:
    supervisor = start("worker", "--url", url, *TWO)
    both_work(url, supervisor)
    for pause in ("0.5 s", "1.0 s", "2.0 s"):
        both_work(url, supervisor)
        victim = next(child for child in supervisor.children() if "pair-2" in child.cmdline())
        victim.kill()
        supervisor.says(f"starting it again in {pause}")
        eventually_blocking(lambda gone=victim: gone.pid not in psutil.pids(), "it is gone")
        eventually_blocking(
            lambda: any("pair-2" in child.cmdline() for child in supervisor.children()), "another is there"
        )
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0


def test_a_process_whose_tasks_forked_is_replaced_all_the_same(url: str, folder: Path, start: Start) -> None:
    (folder / "forking.py").write_text(
        "import os, time\n"
        "async def fork() -> None:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        time.sleep(900)\n        os._exit(0)\n"
        "    print(f'forked {child}.', flush=True)\n"
        "tasks = [fork]\n"
    )
    supervisor = start("worker", "--url", url, *TWO, "--tasks", "forking:tasks")
    both_work(url, supervisor)
    other = Path(__file__).with_name("adding.py")
    subprocess.run([sys.executable, str(other), url, "fork", "key"], check=True, env=surroundings())
    supervisor.says(".\n")
    forked = int(supervisor.output.split("forked ")[1].split(".")[0])
    try:
        for child in supervisor.children():
            child.kill()
        eventually_blocking(lambda: supervisor.output.count("starting it again") == 2, "both are started again")
        both_work(url, supervisor)
    finally:
        os.kill(forked, signal.SIGKILL)
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0


# Development


def test_a_changed_file_restarts_the_worker(url: str, folder: Path, shop: str, start: Start) -> None:
    worker = start("worker", "--url", url, "--tasks", shop, "--reload")
    worker.says("* ship(order: str")
    first = worker.children()[0]
    source = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(source.replace("def ship(order", "def ship(parcel"))
    worker.says("shop.py changed: restarting")
    worker.says("* ship(parcel: str")
    eventually_blocking(lambda: not runs(first), "the old one is gone")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_a_mistake_in_the_source_is_waited_out(url: str, folder: Path, shop: str, start: Start) -> None:
    worker = start("worker", "--url", url, "--tasks", shop, "--reload")
    worker.says("* ship(order: str")
    source = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text("oops(\n" + source)
    worker.says("SyntaxError")
    worker.says("waiting for a file to change")
    (folder / "shop.py").write_text(source.replace("def ship(order", "def ship(parcel"))
    worker.says("* ship(parcel: str")
    worker.send(signal.SIGINT)
    assert worker.ends() == 0


def test_a_long_task_does_not_hold_up_a_reload(
    url: str, folder: Path, shop: str, start: Start, docket_command: Command
) -> None:
    docket_command("tasks", "sleep", "3600", "--url", url, "--key", "nap")
    worker = start("worker", "--url", url, "--tasks", shop, "--reload")
    worker.says("{nap}")
    os.utime(folder / "shop.py")
    eventually_blocking(lambda: worker.output.count("↪") == 2, f"it was requeued and begun again:\n{worker.output}")
    docket_command("clear", "--url", url)


# Recycling


def added(docket_command: Command, url: str, key: str) -> None:
    docket_command("tasks", "trace", key, "--url", url, "--key", key)


def is_completed(docket_command: Command, url: str, key: str) -> bool:
    return docket_command("watch", key, "--url", url).exit_code == 0


@pytest.mark.parametrize("limit", [("--max-tasks", "3"), ("--max-memory", "1MiB")], ids=["tasks", "memory"])
def test_a_worn_out_process_is_replaced_by_one_that_works_already(
    any_url: str, start: Start, docket_command: Command, limit: tuple[str, str]
) -> None:
    supervisor = start("worker", "--url", any_url, "--name", "solo", *limit)
    those_work(any_url, {"solo"}, supervisor)
    for number in range(4):
        added(docket_command, any_url, f"task-{number}")
    eventually_blocking(
        lambda: (
            "worker solo is replaced: it h" in supervisor.output and supervisor.output.count("worker solo started") >= 2
        ),
        "the process was replaced",
        seen=lambda: supervisor.output,
    )
    # The new process had started before the old one was asked to leave.
    assert "starting it again" not in supervisor.output
    added(docket_command, any_url, "later")
    for key in (*(f"task-{number}" for number in range(4)), "later"):
        assert is_completed(docket_command, any_url, key), supervisor.output
    supervisor.send(signal.SIGTERM)
    assert supervisor.ends() == 0, supervisor.output
    assert workers(any_url) == set()


def test_a_bad_limit_is_one_line(docket_command: Command) -> None:
    for option, value, words in (
        ("--max-tasks", "0", "at least 1"),
        ("--max-memory", "much", "'much' is not a size"),
        ("--max-memory", "0", "at least 1"),
    ):
        done = docket_command("worker", option, value)
        assert done.exit_code == 2
        assert words in done.output.lower()


def test_processes_that_replace_each_other_need_a_server_to_share(docket_command: Command) -> None:
    done = docket_command("worker", "--url", "memory://x", "--max-tasks", "5")
    assert done.exit_code == 2
    assert "would not share" in done.output
