"""Loads the Lua scripts, each with those definitions
of the shared parts that it needs and no others.

Every script and every part names the parts it uses in its header (`-- uses: keys, records`); a name
means a definition in one of those. A call of a script runs all of it, and making a function takes
the server longer than most commands: a script with all of its parts would spend most of its time on
functions that it does not call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_USES = re.compile(r"^-- uses: ([\w, ]+)$", re.MULTILINE)
_NOTHING = "nothing"
# In an indented block: what only this block needs is defined here, so that it costs nothing where
# the block is not reached.
_HERE = re.compile(r"^( +)--- parts$")
_HIDDEN = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_LOCAL = re.compile(r"local (?:function )?([\w, ]+)")


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, its source with all it needs,
    and the digest by which the server knows it."""

    name: str
    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One `local …` of a part, and the names that occur in it
    outside of blocks that define what they need themselves."""

    part: str
    lines: tuple[str, ...]
    needs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Part:
    """The parts that this one uses, and its definitions by their names, in their order."""

    uses: tuple[str, ...]
    definitions: Mapping[str, Definition]


@cache
def load(name: str) -> Script:
    text = _read(f"{name}.lua")
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    source = "\n".join([*lines[:head], *_linked(lines[head:], used_parts(name, text), frozenset())]) + "\n"
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())


def used_parts(name: str, text: str) -> tuple[str, ...]:
    """The parts that a header names. Raises ValueError if it names none."""
    found = _USES.search(text)
    if found is None:
        raise ValueError(f"{name}: its header does not say which parts it uses")
    return () if found[1] == _NOTHING else tuple(part.strip() for part in found[1].split(","))


@cache
def part(name: str) -> Part:
    text = _read(f"parts/{name}.lua")
    definitions: dict[str, Definition] = {}
    for lines in _statements(text):
        match = _LOCAL.match(lines[0])
        assert match is not None, f"{name}: not a definition: {lines[0]}"
        definition = Definition(name, lines, _names(lines))
        for defined in match[1].split(","):
            assert defined.strip() not in definitions, f"{name}: {defined} is defined twice"
            definitions[defined.strip()] = definition
    return Part(used_parts(name, text), definitions)


def _linked(lines: Sequence[str], uses: tuple[str, ...], known: frozenset[Definition]) -> list[str]:
    """The lines, and before them what they need of these parts and do not know yet; blocks that ask
    for it are linked in turn."""
    needed = [definition for definition in _needed(_names(lines), uses) if definition not in known]
    known = known.union(needed)
    linked: list[str] = []
    for definition in needed:
        linked += _with_blocks(definition.lines, _scope(definition.part), known)
    return linked + _with_blocks(lines, uses, known)


def _with_blocks(lines: Sequence[str], uses: tuple[str, ...], known: frozenset[Definition]) -> list[str]:
    linked: list[str] = []
    at = 0
    while at < len(lines):
        end = _block_end(lines, at)
        if end > at:
            linked += _linked(lines[at + 1 : end], uses, known)
            at = end
        else:
            linked.append(lines[at])
            at += 1
    return linked


def _block_end(lines: Sequence[str], at: int) -> int:
    """Where a block ends that asks for parts at this line: at the first line that is less indented.
    `at` if it does not ask."""
    asking = _HERE.match(lines[at])
    if asking is None:
        return at
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(asking[1])):
        end += 1
    return end


def _needed(names: frozenset[str], uses: tuple[str, ...]) -> list[Definition]:
    """What these parts define under these names, and what
    those definitions need, in the order of the parts."""
    found = set[Definition]()
    unread = [(name, uses) for name in names]
    while unread:
        name, scope = unread.pop()
        definition = next((part(of).definitions[name] for of in scope if name in part(of).definitions), None)
        if definition is not None and definition not in found:
            found.add(definition)
            unread += [(needed, _scope(definition.part)) for needed in definition.needs]
    return [definition for name in _in_order(uses) for definition in _definitions(name) if definition in found]


@cache
def _scope(name: str) -> tuple[str, ...]:
    """Where the names in a part's definitions are looked up."""
    return (name, *part(name).uses)


@cache
def _definitions(name: str) -> tuple[Definition, ...]:
    return tuple(dict.fromkeys(part(name).definitions.values()))


@cache
def _in_order(uses: tuple[str, ...]) -> tuple[str, ...]:
    """These parts and those that they use, each after those that it uses. Raises ValueError for
    parts that use each other."""
    ordered: list[str] = []

    def add(name: str, users: tuple[str, ...]) -> None:
        if name in users:
            raise ValueError(f"these parts use each other: {', '.join((*users, name))}")
        if name not in ordered:
            for used in part(name).uses:
                add(used, (*users, name))
            ordered.append(name)

    for name in uses:
        add(name, ())
    return tuple(ordered)


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
