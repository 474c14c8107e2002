"""`embedded:///folder`: the data of another user would run code in this process."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docket.storage.embedded.data_folder import open_log, prepare_folder
from docket.storage.embedded.errors import EngineError
from docket.storage.embedded.keeper import START_LOCK
from docket.storage.embedded.processes import try_lock
from docket.storage.embedded.server_commands import LOG, EngineAnswer, ask

STRANGER = 54_321


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        yield Path(parent, "data")


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_folder(folder)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(EngineError, match="belongs to another user"):
        prepare_folder(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_was_given_away_is_refused(folder: Path) -> None:
    prepare_folder(folder)
    os.chown(folder, STRANGER, STRANGER)
    with pytest.raises(EngineError, match="belongs to another user"):
        prepare_folder(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_another_user_left_is_refused(folder: Path) -> None:
    prepare_folder(folder)
    (folder / START_LOCK).touch()
    (folder / "appendonlydir").mkdir()
    os.chown(folder / "appendonlydir", STRANGER, STRANGER)
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="appendonlydir belongs to another user"):
        prepare_folder(folder)


def test_a_symbolic_link_is_refused(folder: Path) -> None:
    target = folder.with_name("target")
    target.mkdir()
    folder.symlink_to(target)
    with pytest.raises(EngineError, match="is a symbolic link"):
        prepare_folder(folder)


def test_no_file_is_opened_through_a_link(folder: Path) -> None:
    prepare_folder(folder)
    precious = folder.with_name("precious")
    precious.write_text("precious")
    for name in (LOG, "clients.lock"):
        (folder / name).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        open_log(folder)
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(folder / "clients.lock")
    assert precious.read_text() == "precious"


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not tell whose socket it is")
def test_the_server_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    path = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert ask(path, timeout=0.01) is EngineAnswer.SILENT
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
        with pytest.raises(EngineError, match="belongs to another user"):
            ask(path)
