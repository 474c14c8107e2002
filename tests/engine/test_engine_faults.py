"""What a folder engine survives: kills of any of its processes, leftovers of a crash, meddling."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from docket.storage.embedded import folder
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.faults

USER = """
engine = FolderEngine(folder)
say(engine.start().socket_path)
wait()
say(engine.ensure().socket_path)
wait()
engine.stop()
"""


def test_the_server_survives_the_death_of_the_process_that_started_it(harness: Any) -> None:
    starter = harness.child(USER)
    socket_path = starter.hear()
    engine = harness.engine()
    client = harness.connect(engine.start())
    client.set("key", "value")
    run_id = client.info("server")["run_id"]
    starter.send(signal.SIGKILL)
    starter.ended()
    assert client.get("key") == "value"
    assert harness.connect(socket_path).info("server")["run_id"] == run_id


def test_the_server_stops_when_its_last_user_was_killed(harness: Any) -> None:
    user = harness.child(USER)
    harness.connect(user.hear()).set("key", "value")
    user.send(signal.SIGKILL)
    user.ended()
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")
    assert harness.connect(harness.engine().start()).get("key") == "value"


def test_after_the_server_was_killed_its_users_find_a_new_one_with_the_data(harness: Any) -> None:
    engine, user = harness.engine(), harness.child(USER)
    address = engine.start()
    user.hear()
    client = harness.connect(address)
    for number in range(1000):
        client.rpush("numbers", number)
    harness.kill(*harness.servers())
    with pytest.raises(redis.ConnectionError):
        client.ping()
    user.go_on()
    assert user.hear() == engine.ensure().socket_path
    assert client.llen("numbers") == 1000
    assert len(harness.servers()) == 1


def test_a_killed_keeper_is_replaced_and_the_server_still_stops(harness: Any) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    (keeper,) = eventually_blocking(harness.keepers, "there is a keeper")
    harness.kill(keeper)
    assert client.ping()
    eventually_blocking(lambda: harness.keepers() and harness.keepers() != [keeper], "there is another keeper")
    engine.stop()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")


def test_the_server_stops_though_its_users_and_its_keeper_were_killed(harness: Any) -> None:
    user = harness.child(USER)
    user.hear()
    (keeper,) = eventually_blocking(harness.keepers, "there is a keeper")
    user.send(signal.SIGKILL)
    harness.kill(keeper)
    user.ended()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")


def test_a_keeper_does_its_work_without_its_supervisor(harness: Any) -> None:
    engine = harness.engine()
    engine.start()
    eventually_blocking(harness.keepers, "there is a keeper")
    harness.kill(*harness.supervisors())
    assert harness.keepers()
    engine.stop()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")


def test_a_server_without_any_keeper_is_adopted_by_the_next_user(harness: Any) -> None:
    user = harness.child(USER)
    run_id = harness.connect(user.hear()).info("server")["run_id"]
    eventually_blocking(harness.keepers, "there is a keeper")
    harness.kill(*harness.supervisors(), *harness.keepers())
    user.send(signal.SIGKILL)
    user.ended()
    engine = harness.engine()
    assert harness.connect(engine.start()).info("server")["run_id"] == run_id
    assert len(harness.servers()) == 1
    engine.stop()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")


def test_a_user_that_leaves_a_server_without_keeper_provides_one(harness: Any) -> None:
    engine = harness.engine()
    engine.start()
    eventually_blocking(harness.keepers, "there is a keeper")
    harness.kill(*harness.supervisors(), *harness.keepers())
    engine.stop()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")


def test_everything_killed_at_once_leaves_data_for_the_next_start(harness: Any) -> None:
    user = harness.child(USER)
    harness.connect(user.hear()).set("key", "value")
    eventually_blocking(harness.keepers, "there is a keeper")
    harness.kill(*harness.supervisors(), *harness.keepers(), *harness.servers(), psutil.Process(user.pid))
    assert (harness.folder / "socket").exists()
    assert harness.connect(harness.engine().start()).get("key") == "value"


def test_leftovers_of_a_crash_do_not_stop_a_start(harness: Any) -> None:
    harness.folder.mkdir(mode=0o700)
    for name in ("start.lock", "clients.lock", "keeper.lock", "server.pid", "server.group", "socket.alias"):
        # A process id that is in use: this must not be taken for the server, nor be killed.
        (harness.folder / name).write_text(str(os.getpid()))
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(harness.folder / "socket"))
    engine = harness.engine()
    assert harness.connect(engine.start()).ping()
    engine.stop()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")


def test_a_cut_off_last_write_does_not_stop_a_start(harness: Any) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    client.set("first", "value")
    client.set("second", "value")
    (tail,) = harness.folder.rglob("*.incr.aof")
    # While the disk is busy the server answers first and writes up to two seconds later.
    eventually_blocking(lambda: b"second" in tail.read_bytes(), "both are written")
    harness.kill(*harness.servers())
    os.truncate(tail, tail.stat().st_size - 3)
    engine.ensure()
    assert client.get("first") == "value"
    assert client.get("second") is None


def test_removing_the_locks_of_a_running_engine_never_gives_two_servers(harness: Any) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    client.set("key", "value")
    for lock in harness.folder.glob("*.lock"):
        lock.unlink()
    others = [harness.engine() for _ in range(3)]
    for other in others:
        assert harness.connect(other.start()).get("key") == "value"
        assert len(harness.servers()) <= 1
    assert harness.connect(engine.ensure()).get("key") == "value"
    eventually_blocking(lambda: len(harness.keepers()) == 1, "there is one keeper")


def test_a_removed_socket_is_healed(harness: Any) -> None:
    engine = harness.engine()
    harness.connect(engine.start()).set("key", "value")
    (harness.folder / "socket").unlink()
    assert harness.connect(engine.ensure()).get("key") == "value"
    assert len(harness.servers()) == 1


def test_a_removed_folder_takes_its_server_with_it(harness: Any) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    eventually_blocking(harness.keepers, "there is a keeper")
    shutil.rmtree(harness.folder)
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")
    client.close()
    assert harness.connect(engine.ensure()).ping()


def test_a_folder_removed_right_after_its_server_was_started_again_takes_that_server_with_it(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that the keeper sleeps through both.
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "60")
    engine = harness.engine()
    engine.start()
    (keeper,) = eventually_blocking(harness.keepers, "there is a keeper")
    eventually_blocking(lambda: {"server.group"} & {Path(f.path).name for f in keeper.open_files()}, "it has looked")
    harness.kill(*harness.servers())
    engine.ensure()
    shutil.rmtree(harness.folder)
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")


def test_a_folder_removed_after_use_leaves_nothing_behind(harness: Any) -> None:
    engine = harness.engine()
    engine.start()
    eventually_blocking(harness.keepers, "there is a keeper")
    engine.stop()
    shutil.rmtree(harness.folder, ignore_errors=True)
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")


def test_a_folder_removed_before_the_keeper_has_begun_leaves_nothing_behind(
    harness: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow, may_begin = tmp_path / "slow-python", tmp_path / "may-begin"
    slow.write_text(f'#!/bin/sh\nuntil [ -e {may_begin} ]; do sleep 0.01; done\nexec {sys.executable} "$@"\n')
    slow.chmod(0o700)
    monkeypatch.setattr(folder, "python_program", lambda: str(slow))
    engine = harness.engine()
    engine.start()
    engine.stop()
    shutil.rmtree(harness.folder)
    may_begin.touch()
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")
