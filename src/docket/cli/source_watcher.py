"""Watches Python source files for changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

CHECK_SECONDS = 0.5
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})


class SourceWatcher:
    """Compares the modification times of the `.py` files below a
    folder. Skips hidden folders and virtual environments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._times = self._read_times()

    async def next_change(self) -> str:
        """Waits until a file is changed, added or removed. Returns its path below the folder."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = await asyncio.to_thread(self._read_times)
            before, self._times = self._times, now
            if now != before:
                different = {path for path, _ in now.items() ^ before.items()}
                return min(different).removeprefix(f"{self._folder}{os.sep}")

    def _read_times(self) -> dict[str, int]:
        return dict(_source_files(str(self._folder)))


def _source_files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        # The folder was removed in the meantime.
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _source_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue
