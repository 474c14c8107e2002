"""Twins: a fast path and the general path that must mean the same. The comment
`twin of: NAME (FILE)` stands at both ends, above a definition. Above other code it begins with a
name for that code: `NAME, twin of: …`. docs/design/performance.md lists all pairs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lint import source

_TWIN = re.compile(r"\s*(?:--|#) (?:(?P<own>[^,]+), )?twin of: (?P<name>.+?) \((?P<file>[\w.]+)\)$")
_DEFINITION = re.compile(r"\s*(?:local function|(?:async )?def|class) (?P<name>\w+)")
_NOT_CODE = re.compile(r"\s*(?:--|#|@)")


class _End(NamedTuple):
    """One end of a pair, and the end that it names."""

    own: str
    own_file: str
    name: str
    file: str


def check() -> Iterator[str]:
    ends: dict[_End, str] = {}
    for path, text in (file for suffix in (".py", ".lua") for file in source.files(suffix)):
        lines = text.splitlines()
        for at, line in enumerate(lines):
            found = _TWIN.match(line)
            if found is None:
                if re.match(r"\s*(?:--|#).*\btwin of:", line):
                    yield f"{path}:{at + 1}: write `twin of: NAME (FILE)`"
                continue
            own = found["own"] or _definition_below(lines, at)
            if own is None:
                yield f"{path}:{at + 1}: no definition follows; write `NAME, twin of: …`"
                continue
            ends[_End(own, path.rpartition("/")[2], found["name"], found["file"])] = f"{path}:{at + 1}"
    rows = _rows()
    for end, place in ends.items():
        if _End(end.name, end.file, end.own, end.own_file) not in ends:
            yield f"{place}: {end.name} ({end.file}) does not say `twin of: {end.own} ({end.own_file})`"
        elif not any(f"`{end.name}`" in row and f"`{end.own}`" in row for row in rows):
            yield f"{place}: docs/design/performance.md, Twins, has no row with `{end.own}` and `{end.name}`"


def _definition_below(lines: list[str], at: int) -> str | None:
    line = next((line for line in lines[at + 1 :] if not _NOT_CODE.match(line)), "")
    found = _DEFINITION.match(line)
    return found and found["name"]


def _rows() -> list[str]:
    page = (source.ROOT / "docs" / "design" / "performance.md").read_text("utf-8")
    _, _, section = page.partition("\n## Twins\n")
    return [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
