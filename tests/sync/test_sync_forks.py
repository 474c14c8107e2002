"""A sync docket before and after a fork: gunicorn with preload, multiprocessing, plain os.fork."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docket.testing.servers import ServerProcess
from docket.testing.servers.binaries import find_binaries
from docket.testing.servers.certificates import make_certificates
from tests.waiting import SECONDS

from .programs import run
from .workers import working

OPENINGS = {
    "made": "",
    "opened": "docket.open()",
    "used": "add('parent')",
    "waiting": """
waiter = threading.Thread(target=lambda: docket.add(double)(1).get_result(), daemon=True)
waiter.start()
eventually_blocking(lambda: docket.snapshot().total_tasks, "the task is added")
""",
}


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS.keys())
def test_parent_and_children_use_a_docket_that_was_made_before_the_fork(server: ServerProcess, opening: str) -> None:
    run(
        opening
        + """
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        for more in range(3):
            add(f"{number}.{more}")
        assert docket.get_execution(f"{number}.0").args == (f"{number}.0",)
        docket.close()
        os._exit(0)
    children.append(child)
add("later")
wait_for(*children)
add("last")
keys = {execution.key for execution in docket.snapshot().future}
expected = {"later", "last"} | {f"{a}.{b}" for a in range(3) for b in range(3)}
assert expected <= keys, keys
""",
        server.url,
    )


def test_a_fork_of_which_python_does_not_know_works_too(server: ServerProcess) -> None:
    """uWSGI forks its workers without Python's handlers for forks."""
    run(
        """
import ctypes
add("parent")


# A thread that waits holds nothing that the child would wait for. uWSGI forks long after the
# application was loaded.
def others_wait():
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != threading.get_ident()}
    return all(frame.f_code.co_name in ("select", "wait") for frame in frames.values())


eventually_blocking(others_wait, "the other threads wait")
child = ctypes.PyDLL(None).fork()
if child == 0:
    add("child")
    assert docket.get_execution("parent").args == ("parent",)
    docket.close()
    os._exit(0)
wait_for(child)
add("last")
assert {execution.key for execution in docket.snapshot().future} == {"parent", "child", "last"}
""",
        server.url,
    )


def test_the_first_use_imports_nothing_so_that_a_fork_can_come_at_any_moment() -> None:
    """A fork during an import of another thread leaves the child with a module whose import never
    ends."""
    program = """
import os, sys
from datetime import timedelta
from docket.sync import Docket

def task(): ...

docket = Docket("program", os.environ["PROGRAM_URL"])
before = set(sys.modules)
execution = docket.add(task)()
docket.add_many([docket.call(task)()])
docket.get_execution(execution.key)
docket.cancel(execution.key)
try:
    docket.add(task)().get_result(timeout=timedelta(0))
except TimeoutError:
    pass
print(*sorted(set(sys.modules) - before))
"""
    with ServerProcess(tcp=True) as server:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PROGRAM_URL": server.url},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    assert done.stdout.split() == []


# The child closes every connection that it has inherited, as Python may do when it collects them.
CLOSE_ALL = """
import asyncio, gc
def close_inherited():
    connections = [thing for thing in gc.get_objects() if isinstance(thing, asyncio.Transport)]
    assert connections
    for connection in connections:
        connection.close()
"""


def test_results_reach_the_parent_whatever_a_child_does_to_its_connections(server: ServerProcess) -> None:
    """On Linux the child shares the parent's epoll instance until it gives up its own copy."""
    with working("program", server.url):
        run(
            CLOSE_ALL
            + """
assert docket.add(double)(1).get_result(timeout=WAIT_LIMIT) == 2
waiting = docket.add(double, when=docket.now() + timedelta(hours=1), key="waiting")(5)
results = []
waiter = threading.Thread(target=lambda: results.append(waiting.get_result()))
waiter.start()
for _ in range(3):
    child = os.fork()
    if child == 0:
        close_inherited()
        os._exit(0)
    wait_for(child)
docket.replace(double, docket.now(), "waiting")(6)
waiter.join(SECONDS)
assert results == [12], results
assert docket.add(double)(2).get_result(timeout=WAIT_LIMIT) == 4
""",
            server.url,
        )


CONNECTIONS = """
import redis
def connections():
    client = redis.Redis.from_url(url)
    listed = {row["id"] for row in client.client_list()} - {str(client.client_id())}
    client.close()
    return listed
"""


def test_connections_of_the_parent_end_when_it_closes_them_though_a_child_lives(server: ServerProcess) -> None:
    run(
        CONNECTIONS
        + """
add("parent")
add("parent, from its own thread")
assert len(connections()) >= 3
child = os.fork()
if child == 0:
    signal.pause()
docket.close()
eventually_blocking(lambda: not connections(), "the connections are gone", seen=connections)
os.kill(child, signal.SIGKILL)
""",
        server.url,
    )


def test_a_child_that_ends_like_a_program_says_nothing(server: ServerProcess) -> None:
    run(
        """
docket.add(double)(1)
child = os.fork()
if child == 0:
    add("child")
    sys.exit()
wait_for(child)
assert docket.get_execution("child") is not None
""",
        server.url,
    )


def test_tls_connections_of_the_parent_outlive_its_children(tmp_path: Path) -> None:
    """A TLS connection that is closed sends a farewell, which would end the parent's connection."""
    with tls_server(tmp_path) as server:
        run(
            CLOSE_ALL
            + CONNECTIONS
            + """
add("parent")
add("parent, from its own thread")
before = connections()
assert len(before) >= 3
for number in range(2):
    child = os.fork()
    if child == 0:
        close_inherited()
        os._exit(0)
    wait_for(child)
add("later")
docket.cancel("later")
assert before <= connections(), (before, connections())
""",
            server.url,
        )


def tls_server(folder: Path) -> ServerProcess:
    binaries = [binary for binary in find_binaries() if binary.speaks_tls]
    if not binaries or shutil.which("openssl") is None:
        pytest.skip("no server that speaks TLS, or no openssl, on this machine")
    return ServerProcess(binary=binaries[0], certificates=make_certificates(folder))


def test_children_that_are_forked_while_threads_add_work(server: ServerProcess) -> None:
    run(
        """
stop = threading.Event()
def adds(name):
    number = 0
    while not stop.is_set():
        add(f"{name}.{number}")
        number += 1
threads = [threading.Thread(target=adds, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
children = []
for number in range(10):
    child = os.fork()
    if child == 0:
        add(f"child.{number}")
        os._exit(0)
    children.append(child)
wait_for(*children)
stop.set()
for thread in threads:
    thread.join()
assert all(docket.get_execution(f"child.{number}") for number in range(10))
""",
        server.url,
    )


def test_a_grandchild_works(server: ServerProcess) -> None:
    run(
        """
add("parent")
child = os.fork()
if child == 0:
    add("child")
    grandchild = os.fork()
    if grandchild == 0:
        add("grandchild")
        os._exit(0)
    wait_for(grandchild)
    add("child again")
    os._exit(0)
wait_for(child)
assert docket.get_execution("grandchild") and docket.get_execution("child again")
""",
        server.url,
    )


def test_a_task_that_the_parent_has_added_is_awaited_by_the_child(server: ServerProcess) -> None:
    with working("program", server.url):
        run(
            """
execution = docket.add(double, key="early")(3)
child = os.fork()
if child == 0:
    assert execution.get_result(timeout=WAIT_LIMIT) == 6
    execution.progress.sync()
    os._exit(0)
wait_for(child)
assert execution.get_result(timeout=WAIT_LIMIT) == 6
""",
            server.url,
        )


def test_a_docket_that_was_closed_is_closed_in_the_child(server: ServerProcess) -> None:
    run(
        """
from docket import NotOpen
add("parent")
docket.close()
child = os.fork()
if child == 0:
    try:
        add("child")
    except NotOpen:
        os._exit(0)
    os._exit(1)
wait_for(child)
""",
        server.url,
    )


MULTIPROCESSING = """
def child_adds(number):
    return add(number)

if __name__ == "__main__":
    add("parent")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(child_adds, range(4)) == ["0", "1", "2", "3"]
    assert docket.snapshot().total_tasks == 5
"""


def test_the_processes_of_a_pool_add_tasks(server: ServerProcess) -> None:
    run(MULTIPROCESSING, server.url)


def test_a_docket_is_passed_to_a_spawned_process(server: ServerProcess) -> None:
    run(
        """
from tests.sync.spawned import add_one
docket.open()
child = multiprocessing.get_context("spawn").Process(target=add_one, args=(docket, "one"))
child.start()
child.join(SECONDS)
assert child.exitcode == 0
assert docket.get_execution("one") is not None
""",
        server.url,
    )
