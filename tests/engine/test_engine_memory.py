"""`memory://`: one throw-away server for each process, gone with it."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import eventually_blocking

OWNER = """
address = memory_engine("a")
say(address.socket_path)
wait()
"""


@pytest.mark.parametrize(
    "last_act", ["pass", "raise SystemExit(3)", "raise RuntimeError('a test wants this')", "os._exit(0)"]
)
def test_the_server_and_its_folder_go_when_the_owner_ends(harness: Any, last_act: str) -> None:
    owner = harness.child("sys.stderr = open(os.devnull, 'w')\n" + OWNER + last_act)
    socket_path = owner.hear()
    assert harness.connect(socket_path).ping()
    owner.go_on()
    owner.ended()
    eventually_blocking(lambda: not Path(socket_path).parent.exists(), "the folder is gone")
    eventually_blocking(lambda: not harness.servers(), "the server is gone")


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_the_server_and_its_folder_go_when_a_signal_ends_the_owner(harness: Any, fatal: signal.Signals) -> None:
    owner = harness.child("sys.stderr = open(os.devnull, 'w')\n" + OWNER)
    socket_path = owner.hear()
    assert harness.connect(socket_path).ping()
    owner.send(fatal)
    owner.ended()
    eventually_blocking(lambda: not Path(socket_path).parent.exists(), "the folder is gone")
    eventually_blocking(lambda: not harness.servers(), "the server is gone")


def test_the_server_outlives_the_thread_that_started_it(harness: Any) -> None:
    owner = harness.child(
        """
thread = threading.Thread(target=memory_engine, args=("a",))
thread.start()
thread.join()
address = memory_engine("a")
say(address.socket_path)
wait()
say(connect(address).ping())
"""
    )
    assert harness.connect(owner.hear()).ping()
    owner.go_on()
    assert owner.hear() == "True"


def test_control_c_leaves_the_server_to_the_clean_up_of_its_owner(harness: Any) -> None:
    owner = harness.child(
        """
client = connect(memory_engine("a"))
try:
    say("ready")
    wait()
except KeyboardInterrupt:
    client.set("cleaned", "up")
    say(client.get("cleaned"))
"""
    )
    owner.hear()
    owner.send(signal.SIGINT, to_group=True)
    assert owner.hear() == "up"


def test_other_children_of_the_owner_do_not_keep_the_server_alive(harness: Any) -> None:
    owner = harness.child(
        """
address = memory_engine("a")
program = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
if (forked := os.fork()) == 0:
    os.close(1)
    time.sleep(60)
say(address.socket_path, program.pid, forked)
wait()
"""
    )
    socket_path, *pids = owner.hear().split()
    others = [psutil.Process(int(pid)) for pid in pids]
    try:
        owner.send(signal.SIGKILL)
        eventually_blocking(lambda: not Path(socket_path).parent.exists(), "the folder is gone")
        assert all(other.is_running() for other in others)
    finally:
        harness.kill(*others)


def test_a_child_forked_while_the_server_starts_does_not_keep_it_alive(harness: Any) -> None:
    owner = harness.child(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks in a process with threads
begun = threading.Event()
def start():
    begun.set()
    say(memory_engine("a").socket_path)
thread = threading.Thread(target=start)
thread.start()
begun.wait()
time.sleep(0.005)
if (forked := os.fork()) == 0:
    os.close(1)
    time.sleep(60)
thread.join()
say(forked)
wait()
"""
    )
    socket_path, forked = owner.hear(), psutil.Process(int(owner.hear()))
    try:
        owner.send(signal.SIGKILL)
        eventually_blocking(lambda: not Path(socket_path).parent.exists(), "the folder is gone")
        assert forked.is_running()
    finally:
        harness.kill(forked)


def test_a_forked_child_gets_a_server_of_its_own(harness: Any) -> None:
    owner = harness.child(
        """
mine = memory_engine("a")
connect(mine).set("whose", "parent")
if os.fork() == 0:
    theirs = memory_engine("a")
    say(theirs.socket_path != mine.socket_path, connect(theirs).get("whose"))
    os._exit(0)
os.wait()
say(connect(mine).get("whose"), memory_engine("a") == mine)
"""
    )
    assert owner.hear() == "True None"
    assert owner.hear() == "parent True"


def test_equal_names_share_a_database_and_others_do_not(harness: Any) -> None:
    owner = harness.child(
        """
say(memory_engine("a") == memory_engine("a"))
connect(memory_engine("a")).set("key", "value")
say(connect(memory_engine("a")).get("key"), connect(memory_engine("b")).get("key"))
"""
    )
    assert owner.hear() == "True"
    assert owner.hear() == "value None"


def test_two_hundred_names_cost_one_server(harness: Any) -> None:
    owner = harness.child(
        """
addresses = {memory_engine(f"name {n}") for n in range(200)}
client = connect(memory_engine("name 0"))
databases = {address.database for address in addresses}
for database in databases:
    client.select(database)
    client.set("key", database)
say(len(addresses), len(client.info("keyspace")))
wait()
"""
    )
    assert owner.hear() == "200 200"
    assert len(harness.servers()) == 1


def test_threads_and_event_loops_share_one_server(harness: Any) -> None:
    owner = harness.child(
        """
import asyncio
import redis.asyncio
answers = []
async def use(n):
    address = memory_engine(f"{n % 4}")
    async with redis.asyncio.Redis(unix_socket_path=address.socket_path, db=address.database) as client:
        answers.append(await client.incr("uses"))
threads = [threading.Thread(target=lambda n=n: asyncio.run(use(n))) for n in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(sorted(answers))
wait()
"""
    )
    assert owner.hear() == str(sorted([1, 2, 3, 4] * 4))
    assert len(harness.servers()) == 1


def test_after_the_server_was_killed_the_next_call_starts_an_empty_one(harness: Any) -> None:
    owner = harness.child(
        """
first = memory_engine("a")
connect(first).set("key", "value")
say("ready")
wait()
second = memory_engine("a")
say(second.socket_path != first.socket_path, second.database == first.database, connect(second).get("key"))
wait()
"""
    )
    owner.hear()
    harness.kill(*harness.servers())
    owner.go_on()
    assert owner.hear() == "True True None"
    eventually_blocking(lambda: len(list(harness.temporary.iterdir())) == 1, "the folder of the first is gone")


def test_an_owner_that_ignores_its_children_gets_a_server_too(harness: Any) -> None:
    owner = harness.child("signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + OWNER)
    assert harness.connect(owner.hear()).ping()


def test_the_owner_has_no_child_to_wait_for(harness: Any) -> None:
    owner = harness.child(
        """
memory_engine("a")
try:
    os.wait()
except ChildProcessError:
    say("none")
"""
    )
    assert owner.hear() == "none"


def test_the_server_is_private_and_keeps_nothing(harness: Any) -> None:
    owner = harness.child(OWNER)
    socket_path = owner.hear()
    client = harness.connect(socket_path)
    assert client.config_get("save")["save"] == ""
    assert client.config_get("appendonly")["appendonly"] == "no"
    assert client.config_get("port")["port"] == "0"
    assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert stat.S_IMODE(os.stat(socket_path).st_mode) == 0o700
    assert stat.S_IMODE(Path(socket_path).parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(("setting", "allowed"), [("", False), ("1", True)])
def test_debug_commands_only_where_asked_for(
    harness: Any, monkeypatch: pytest.MonkeyPatch, setting: str, allowed: bool
) -> None:
    monkeypatch.setenv("DOCKET_ENGINE_DEBUG", setting)
    client = harness.connect(harness.child(OWNER).hear())
    assert (client.config_get("enable-debug-command")["enable-debug-command"] == "local") is allowed


def test_the_temporary_folder_may_have_a_long_name(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    long = harness.root / ("long" * 30)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    owner = harness.child(OWNER)
    socket_path = owner.hear()
    assert harness.connect(socket_path).ping()
    owner.go_on()
    eventually_blocking(lambda: not Path(socket_path).parent.exists(), "the folder is gone")
