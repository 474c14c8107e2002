"""The files of the package, and of the history checker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "docket"
CHAOS = ROOT / "chaos"


def files(suffix: str) -> Iterator[tuple[str, str]]:
    """Each file with that suffix: its path below src or below the repository, and its text."""
    for folder in (PACKAGE, CHAOS):
        for file in sorted(folder.rglob(f"*{suffix}")):
            yield file.relative_to(folder.parent).as_posix(), file.read_text("utf-8")
