"""Notices when Python source changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

LOOK_SECONDS = 0.5
_NOT_OURS = frozenset({"node_modules", "__pycache__", "site-packages"})


class SourceWatcher:
    """Looks at the times of the `.py` files below a folder;
    hidden folders and virtual environments are left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    async def next_change(self) -> str:
        """Returns when a file was changed, added or removed: its path below the folder."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = await asyncio.to_thread(self._look)
            before, self._seen = self._seen, now
            if now != before:
                different = {path for path, _ in now.items() ^ before.items()}
                return min(different).removeprefix(f"{self._folder}{os.sep}")

    def _look(self) -> dict[str, int]:
        return dict(_source_files(str(self._folder)))


def _source_files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        # Removed while we look.
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_OURS:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _source_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue
