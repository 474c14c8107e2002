"""Pages name files that exist: `worker/service.py`
in a page is the end of a path in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lint.prose import pages
from lint.source import ROOT

# Pages about the past, or about files outside the repository.
EXEMPT = ("CHANGELOG.md",)
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1[`~]*$", re.DOTALL | re.MULTILINE)
MENTION = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|lua|sh|toml))(?:::\w+)?`")
FOLDERS = ("src", "tests", "bench", "chaos", "compat", "docs", "examples", "lint")


def check() -> Iterator[str]:
    known = existing(ROOT)
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        if name not in EXEMPT:
            yield from (f"{name}: {path} does not exist" for path in missing(page.read_text("utf-8"), known))


def missing(text: str, known: set[str]) -> list[str]:
    prose = FENCED.sub("", text)
    return [path for path in MENTION.findall(prose) if f"/{path}" not in known]


def existing(root: Path) -> set[str]:
    """Every end of the path of every file:
    `/src/docket/docket.py`, `/docket/docket.py`, `/docket.py`."""
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*.*")]
    files += [file for file in root.iterdir() if file.is_file()]
    ends: set[str] = set()
    for file in files:
        parts = file.relative_to(root).parts
        ends.update("/" + "/".join(parts[i:]) for i in range(len(parts)))
    return ends
