"""Loads the Lua scripts. Each gets only the definitions of the shared parts that it needs.

The header of every script and part names the parts that it uses (`-- uses: keys, records`). A name
in the code means a definition in one of those parts. Each call of a script runs its whole source,
and the server needs more time to create a function than for most commands: with all definitions of
its parts, a script would spend most of its time on functions that it does not call.
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
# In an indented block: definitions that only this block needs go here, so that they cost nothing if
# the block is not reached.
_MARK = re.compile(r"^( +)--- parts$")
_HIDDEN = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_LOCAL = re.compile(r"local (?:function )?([\w, ]+)")


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, its complete source, and the digest by which the server knows it."""

    name: str
    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One `local …` of a part, and the names in it, except those in blocks with definitions of
    their own."""

    part: str
    lines: tuple[str, ...]
    needs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Part:
    """The parts that this part uses, and its definitions by name, in their order."""

    uses: tuple[str, ...]
    definitions: Mapping[str, Definition]


_loaded: dict[str, Script] = {}


def load_all() -> None:
    """Loads every script now. A worker that has no file descriptor left can still run them."""
    for file in files("docket.storage").joinpath("lua").iterdir():
        if file.name.endswith(".lua"):
            load(file.name.removesuffix(".lua"))


@cache
def load(name: str) -> Script:
    text = _read(f"{name}.lua")
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    source = _shortened(lines[0], _linked(lines[head:], used_parts(name, text), frozenset()))
    return remember(Script(name, source, hashlib.sha1(source.encode()).hexdigest()))


def _shortened(title: str, lines: Sequence[str]) -> str:
    """The source as the server gets it: its title, and the code without comments of their own
    lines, and without indentation. The server reads a new script from its first to its last byte
    twice."""
    code = (line.strip() for line in lines)
    return "\n".join([title, *(line for line in code if line and not line.startswith("--"))]) + "\n"


def remember(script: Script) -> Script:
    """From now on `script_with` finds the script."""
    _loaded[script.sha] = script
    return script


def script_with(sha: str) -> Script | None:
    """The script with that digest, if this process has used it."""
    return _loaded.get(sha)


def used_parts(name: str, text: str) -> tuple[str, ...]:
    """The parts that a header names. Raises ValueError if the header has no such line."""
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
    """The lines, preceded by the definitions that they need and that are not `known` yet. Marked
    blocks get their own definitions in the same way."""
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
    """The end of the block that is marked at this line: the first line with less indentation. `at`
    if the line is not a mark."""
    mark = _MARK.match(lines[at])
    if mark is None:
        return at
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(mark[1])):
        end += 1
    return end


def _needed(names: frozenset[str], uses: tuple[str, ...]) -> list[Definition]:
    """The definitions of these names in these parts, and the definitions that those need, in the
    order of the parts."""
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
    """The parts in which the names of a part's definitions are searched."""
    return (name, *part(name).uses)


@cache
def _definitions(name: str) -> tuple[Definition, ...]:
    return tuple(dict.fromkeys(part(name).definitions.values()))


@cache
def _in_order(uses: tuple[str, ...]) -> tuple[str, ...]:
    """These parts and the parts that they use, each after the parts that it uses. Raises ValueError
    if parts use each other."""
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
    """The statements of a part. A statement starts at the margin and ends before the next line at
    the margin that is not its `end`."""
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
