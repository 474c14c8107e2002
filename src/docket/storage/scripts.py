"""Loads the Lua scripts, each with those definitions of the shared parts that it needs and no others.

A call of a script runs all of it, and making a function takes the server longer than most commands: a script with all parts
would spend most of its time on functions that it does not call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# In the order in which they may lean on each other.
PARTS = (
    "keys",
    "records",
    "payloads",
    "calling",
    "suspects",
    "unknown",
    "moves",
    "ending",
    "claiming",
    "handing",
    "admitting",
    "fleet",
    "roster",
    "choosing",
)
# In an indented block: what only this block needs is defined here, so that it costs nothing where the block is not reached.
_HERE = re.compile(r"^( +)--- parts$")
_HIDDEN = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_LOCAL = re.compile(r"local (?:function )?([\w, ]+)")


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, its source with all it needs, and the digest by which the server knows it."""

    name: str
    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One `local …` of a part, and the names that occur in it outside of blocks that define what they need themselves."""

    lines: tuple[str, ...]
    needs: frozenset[str]


@cache
def load(name: str) -> Script:
    lines = _read(f"{name}.lua").splitlines()
    head = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    source = "\n".join([*lines[:head], *_linked(lines[head:], frozenset())]) + "\n"
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())


def _linked(lines: Sequence[str], known: frozenset[Definition]) -> list[str]:
    """The lines, and before them what they need and do not know yet; blocks that ask for it are linked in turn."""
    needed = [definition for definition in _needed(_names(lines)) if definition not in known]
    known = known.union(needed)
    linked: list[str] = []
    for definition in needed:
        linked += _with_blocks(definition.lines, known)
    return linked + _with_blocks(lines, known)


def _with_blocks(lines: Sequence[str], known: frozenset[Definition]) -> list[str]:
    linked: list[str] = []
    at = 0
    while at < len(lines):
        end = _block_end(lines, at)
        if end > at:
            linked += _linked(lines[at + 1 : end], known)
            at = end
        else:
            linked.append(lines[at])
            at += 1
    return linked


def _block_end(lines: Sequence[str], at: int) -> int:
    """Where a block ends that asks for parts at this line: at the first line that is less indented. `at` if it does not ask."""
    asking = _HERE.match(lines[at])
    if asking is None:
        return at
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(asking[1])):
        end += 1
    return end


def _needed(names: frozenset[str]) -> list[Definition]:
    """What is defined under these names, and what those definitions need, in the order of the parts."""
    definitions = _definitions()
    open_names, found = list(names), set[Definition]()
    while open_names:
        definition = definitions.get(open_names.pop())
        if definition is not None and definition not in found:
            found.add(definition)
            open_names += definition.needs
    return [definition for definition in dict.fromkeys(definitions.values()) if definition in found]


@cache
def _definitions() -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for part in PARTS:
        for lines in _statements(_read(f"parts/{part}.lua")):
            match = _LOCAL.match(lines[0])
            assert match is not None, f"{part}: not a definition: {lines[0]}"
            definition = Definition(lines, _names(lines))
            for name in match[1].split(","):
                assert name.strip() not in found, f"{part}: {name} is defined twice"
                found[name.strip()] = definition
    return found


def _statements(text: str) -> list[tuple[str, ...]]:
    """What begins at the margin goes on until the next line there that is not its `end`."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("--") or not line.strip():
            continue
        if line.startswith(" ") or line == "end":
            found[-1].append(line)
        else:
            found.append([line])
    return [tuple(lines) for lines in found]


def _names(lines: Sequence[str]) -> frozenset[str]:
    outside: list[str] = []
    at = 0
    while at < len(lines):
        end = _block_end(lines, at)
        outside += lines[at : at + 1] if end == at else ()
        at = max(end, at + 1)
    return frozenset(_NAME.findall(_HIDDEN.sub("", "\n".join(outside))))


def _read(path: str) -> str:
    return (files("docket.storage") / "lua" / path).read_text()
