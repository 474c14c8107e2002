"""Loads the Lua scripts: each a file with a header, shared parts by include."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--- include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, its source with all includes, and the digest by which the server knows it."""

    name: str
    source: str
    sha: str


@cache
def load(name: str) -> Script:
    folder = files("docket.storage") / "lua"

    def part(match: re.Match[str]) -> str:
        return (folder / "parts" / f"{match[1]}.lua").read_text()

    source = _INCLUDE.sub(part, (folder / f"{name}.lua").read_text())
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())
