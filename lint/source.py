"""The files of the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "docket"


def files(suffix: str) -> Iterator[tuple[str, str]]:
    """Each file with that suffix: its path below src, and its text."""
    for file in sorted(PACKAGE.rglob(f"*{suffix}")):
        yield file.relative_to(PACKAGE.parent).as_posix(), file.read_text("utf-8")
