"""How much of the server's CPU time each script call takes.

The slow log counts time on the clock: on a busy machine that includes the time in which the server
does not run. A script can ask for the CPU time of its process, so each one is wrapped: calls that
take long write a line to the server's log.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path

from docket.storage import scripts, server
from docket.storage.scripts import Script

# Calls below this are not written down.
LEAST_MS = 0.5
_LINE = re.compile(r"script-cpu (\w+) ([\d.]+)")

_load = scripts.load


@contextlib.contextmanager
def timed_scripts() -> Generator[None]:
    """All scripts that this process sends meanwhile are timed."""
    server.load = _timed
    try:
        yield
    finally:
        server.load = _load


@cache
def _timed(name: str) -> Script:
    source = f"""
local began = os.clock()
local function script()
{_load(name).source}
end
local answer = script()
local spent = (os.clock() - began) * 1000
if spent >= {LEAST_MS} then
  redis.log(redis.LOG_WARNING, string.format('script-cpu {name} %.3f', spent))
end
return answer
"""
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())


def script_name(sha: str) -> str:
    """The script that has this digest when it is timed."""
    return _names().get(sha, "loading a script")


@cache
def _names() -> dict[str, str]:
    folder = Path(scripts.__file__).parent / "lua"
    return {_timed(path.stem).sha: path.stem for path in folder.glob("*.lua")}


class ScriptLog:
    """The lines that timed scripts have written to the server's log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_up_to = 0

    def skip(self) -> None:
        self._read_up_to = self._path.stat().st_size

    def worst(self) -> tuple[float, str]:
        """The largest CPU time since the last skip, in milliseconds, and whose it was."""
        with self._path.open("rb") as log:
            log.seek(self._read_up_to)
            lines = log.read().decode(errors="replace")
        times = [(float(ms), name) for name, ms in _LINE.findall(lines)]
        return max(times, default=(0.0, "none"))
