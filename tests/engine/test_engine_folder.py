"""`embedded://`: one server for a folder, shared, with data that stays."""

from __future__ import annotations

import os
import shlex
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from docket.storage.embedded import EngineError, find_server
from docket.storage.embedded import server_commands as server_module
from tests.waiting import eventually_blocking

USER = """
engine = FolderEngine(folder)
address = engine.start()
say(address.socket_path)
wait()
engine.stop()
"""


def keeper_looks_on(harness: Any) -> None:
    """Wait until the keeper woke up often enough for an unused server to be stopped."""
    (keeper,) = eventually_blocking(harness.keepers, "there is a keeper")
    before = keeper.num_ctx_switches().voluntary
    eventually_blocking(lambda: keeper.num_ctx_switches().voluntary > before + 20, "twenty more looks")


def test_the_server_lingers_then_stops_and_the_data_is_there_on_restart(harness: Any) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    client.set("key", "value")
    first = client.info("server")["run_id"]
    client.close()
    engine.stop()
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")
    client = harness.connect(engine.start())
    assert client.get("key") == "value"
    assert client.info("server")["run_id"] != first


def test_whoever_comes_back_within_the_linger_time_finds_the_same_server(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "3")
    engine = harness.engine()
    first = harness.connect(engine.start()).info("server")["run_id"]
    engine.stop()
    assert harness.connect(engine.start()).info("server")["run_id"] == first
    # Its keeper goes at once when there is nothing to keep.
    engine.stop()
    harness.kill(*harness.servers())


def test_the_server_stays_while_one_process_of_several_uses_it(harness: Any) -> None:
    leaving, staying = harness.engine(), harness.engine()
    address = leaving.start()
    assert staying.start() == address
    leaving.stop()
    client = harness.connect(address)
    run_id = client.info("server")["run_id"]
    keeper_looks_on(harness)
    assert client.info("server")["run_id"] == run_id


def test_another_process_joins_the_same_server(harness: Any) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    user = harness.child(USER)
    assert user.hear() == engine.ensure().socket_path
    assert len(harness.servers()) == 1
    assert client.ping()


def test_a_forked_child_counts_as_a_user(harness: Any) -> None:
    parent = harness.child(
        """
engine = FolderEngine(folder)
address = engine.start()
if os.fork() == 0:
    wait()
    say(connect(address).get("key"))
    engine.stop()
    os._exit(0)
connect(address).set("key", "value")
engine.stop()
say("left")
os.wait()
"""
    )
    parent.hear()
    keeper_looks_on(harness)
    parent.go_on()
    assert parent.hear() == "value"


def test_starting_and_stopping_twice_does_no_harm(harness: Any) -> None:
    engine = harness.engine()
    engine.stop()
    assert engine.start() == engine.start() == engine.ensure()
    engine.stop()
    engine.stop()
    eventually_blocking(lambda: not harness.servers(), "the server has stopped")


def test_folder_socket_and_data_are_for_the_user_alone(harness: Any) -> None:
    address = harness.engine().start()
    assert stat.S_IMODE(harness.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(os.stat(address.socket_path).st_mode) == 0o700
    client = harness.connect(address)
    client.set("key", "value")
    files = [path for path in harness.folder.rglob("*") if path.is_file()]
    assert any("appendonly" in path.name for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert client.config_get("port")["port"] == "0"
    assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert client.config_get("appendonly")["appendonly"] == "yes"


def test_an_empty_folder_that_others_may_read_becomes_private(harness: Any) -> None:
    harness.folder.mkdir()
    harness.folder.chmod(0o775)
    harness.engine().start()
    assert stat.S_IMODE(harness.folder.stat().st_mode) == 0o700


def test_a_folder_with_other_things_keeps_its_mode(harness: Any) -> None:
    harness.folder.mkdir()
    (harness.folder / "notes.txt").touch()
    harness.folder.chmod(0o755)
    harness.engine().start()
    assert stat.S_IMODE(harness.folder.stat().st_mode) == 0o755


def test_a_folder_where_others_may_write_is_refused(harness: Any) -> None:
    harness.folder.mkdir()
    (harness.folder / "notes.txt").touch()
    harness.folder.chmod(0o777)
    with pytest.raises(EngineError, match="name a folder for docket alone"):
        harness.engine().start()


def test_writes_reach_the_disk_every_second_unless_asked_for_more(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = harness.connect(harness.engine().start())
    assert client.config_get("appendfsync")["appendfsync"] == "everysec"
    harness.engine(fsync="always").start()
    assert client.config_get("appendfsync")["appendfsync"] == "always"
    monkeypatch.setenv("DOCKET_ENGINE_FSYNC", "always")
    assert (
        harness.connect(harness.engine(harness.root / "other").start()).config_get("appendfsync")["appendfsync"]
        == "always"
    )


def test_a_folder_with_a_long_name_is_reached_by_a_short_way(harness: Any) -> None:
    folder = harness.root / ("long" * 30) / ("longer" * 20)
    engine = harness.engine(folder)
    address = engine.start()
    assert len(os.fsencode(address.socket_path)) <= 103
    assert harness.engine(folder).start() == address
    client = harness.connect(address)
    client.set("key", "value")
    client.close()
    for user in harness.engines:
        user.stop()
    eventually_blocking(lambda: not harness.processes(), "server and keeper have stopped")
    assert not list(harness.temporary.iterdir())
    assert harness.connect(engine.start()).get("key") == "value"


def test_the_short_way_is_made_again_when_a_cleaner_removed_it(harness: Any) -> None:
    folder = harness.root / ("long" * 30)
    engine = harness.engine(folder)
    link = Path(engine.start().socket_path).parent
    link.unlink()
    link.parent.rmdir()
    assert harness.connect(engine.ensure()).ping()
    assert len(harness.servers()) == 1


def test_start_returns_when_the_data_is_loaded(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = harness.engine()
    client = harness.connect(engine.start())
    with client.pipeline(transaction=False) as pipeline:
        for number in range(6000):
            pipeline.set(f"key {number}", number)
        pipeline.execute()
    harness.kill(*harness.servers())

    slow = harness.root / "slow-server"
    slow.write_text(f'#!/bin/sh\nexec {shlex.quote(str(find_server()))} "$@" --key-load-delay 200\n')
    slow.chmod(0o700)
    monkeypatch.setenv("DOCKET_SERVER", str(slow))
    user = harness.child(USER)
    socket_path = str(harness.folder / "socket")
    eventually_blocking(
        lambda: server_module.ask(socket_path) is server_module.EngineAnswer.LOADING, "the server loads"
    )
    assert harness.connect(user.hear()).dbsize() == 6000


def test_a_server_that_hangs_gives_an_error_and_not_a_second_server(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = harness.engine()
    engine.start()
    (hanging,) = harness.servers()
    monkeypatch.setattr(server_module, "PATIENCE_SECONDS", 0.5)
    hanging.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(EngineError, match="runs but does not answer"):
            engine.ensure()
        assert harness.servers() == [hanging]
    finally:
        hanging.send_signal(signal.SIGCONT)


def test_the_log_does_not_grow_without_end(harness: Any) -> None:
    harness.folder.mkdir()
    log = harness.folder / "server.log"
    log.write_bytes(b"line\n" * 300_000)
    harness.engine().start()
    assert log.stat().st_size < 100_000
    assert (harness.folder / "server.log.old").stat().st_size == 1_500_000
