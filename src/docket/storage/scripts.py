"""Loads the Lua scripts. Each gets only the definitions of the shared parts that it needs.

The header of every script and part names the parts that it uses (`-- uses: keys, records`). A name
in the code means a definition in one of those parts. Each call of a script runs its whole source,
and the server needs more time to create a function than for most commands: with all definitions of
its parts, a script would spend most of its time on functions that it does not call.

`python -m docket.storage.scripts settle` prints the script that the server runs, each line with the
file and the line that it comes from.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from .schema import locations
from .schema.lua import definitions, expanded

_USES = re.compile(r"^-- uses: ([\w/, ]+)$", re.MULTILINE)
_NOTHING = "nothing"
# The part that the schema writes. It belongs to every script and to every other part.
_SCHEMA = "schema"
# The part that calls the functions of the location of a task.
_LOCATIONS = "locations"
# In an indented block: definitions that only this block needs go here, so that they cost nothing if
# the block is not reached.
_MARK = re.compile(r"^( +)--- parts$")
_HIDDEN = re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_LOCAL = re.compile(r"local (?:function )?([\w, ]+)")
_SHA = re.compile(r"\b(?:f_)?([0-9a-f]{40})\b")
_ERROR_LINE = re.compile(r"@?user_script: ?(\d+)")


class Line(NamedTuple):
    """A line of Lua, and the file and the line where it is written."""

    text: str
    file: str
    number: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}" if self.number else self.file


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, its complete source, and the digest by which the server knows it."""

    name: str
    source: str
    sha: str
    # The file and the line of each line of the source, if each comes from a file. One text: the
    # scripts have 20,000 lines, and Python's garbage collector would visit an object for each.
    places: str = ""

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the source, if each comes from a file."""
        places = (place.rpartition(":") for place in self.places.splitlines())
        texts = self.source.splitlines() if self.places else ()
        return tuple(Line(text, file, int(number)) for text, (file, _, number) in zip(texts, places, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """One `local …` of a part, and the names in it, except those in blocks with definitions of
    their own."""

    part: str
    lines: tuple[Line, ...]
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
    return remember(_assembled(name, source(f"{name}.lua")))


def assemble(name: str, text: str) -> Script:
    """A script that is not in a file, linked as all others are: for tests of shared parts."""
    return _assembled(name, numbered(name, text))


def _assembled(name: str, lines: Sequence[Line]) -> Script:
    head = next(i for i, line in enumerate(lines) if not line.text.startswith("--"))
    header = "\n".join(line.text for line in lines[:head])
    shortened = _shortened(lines[0], _linked(lines[head:], used_parts(name, header), frozenset()))
    return script_of(name, shortened)


def script_of(name: str, lines: Sequence[Line]) -> Script:
    source = "".join(f"{line.text}\n" for line in lines)
    places = "\n".join(f"{line.file}:{line.number}" for line in lines)
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest(), places)


def numbered(file: str, text: str) -> list[Line]:
    return [Line(line, file, number) for number, line in enumerate(text.splitlines(), 1)]


def source(path: str) -> list[Line]:
    """The lines of a script or a part, with the fields of records and rows that they name."""
    return [line._replace(text=_expanded(line)) for line in numbered(path, _read(path))]


def _expanded(line: Line) -> str:
    if "$" not in line.text or line.text.lstrip().startswith("--"):
        return line.text
    try:
        return expanded(line.text)
    except ValueError as error:
        raise ValueError(f"{line.place}: {error}") from None


def _shortened(title: Line, lines: Iterable[Line]) -> tuple[Line, ...]:
    """The source as the server gets it: its title, and the code without comments of their own
    lines, and without indentation. The server reads a new script from its first to its last byte
    twice."""
    code = (Line(line.text.strip(), line.file, line.number) for line in lines)
    return (title, *(line for line in code if line.text and not line.text.startswith("--")))


def remember(script: Script) -> Script:
    """From now on `script_with` finds the script."""
    _loaded[script.sha] = script
    return script


def script_with(sha: str) -> Script | None:
    """The script with that digest, if this process has used it."""
    return _loaded.get(sha)


def mark_script(error: Exception, script: Script) -> None:
    """Marks an error with the script that failed: Valkey 9 does not name its digest."""
    vars(error)["script"] = script


def failed_at(error: BaseException) -> tuple[Script, Line] | None:
    """The script and the line that an error of the server is about, if this process has used the
    script."""
    text = str(error)
    sha, number = _SHA.search(text), _ERROR_LINE.search(text)
    script = vars(error).get("script") or (script_with(sha[1]) if sha is not None else None)
    lines = script.lines if script is not None and number is not None else ()
    if script is None or number is None or not 0 < int(number[1]) <= len(lines):
        return None
    return script, lines[int(number[1]) - 1]


def with_place(error: BaseException) -> str:
    """The text of a server's error. If it is about a line of a script, with the file and the line
    where that line is written."""
    failed = failed_at(error)
    return str(error) if failed is None else f"{error} ({failed[0].name}: {failed[1].place})"


def used_parts(name: str, text: str) -> tuple[str, ...]:
    """The parts that a header names. Raises ValueError if the header has no such line."""
    found = _USES.search(text)
    if found is None:
        raise ValueError(f"{name}: its header does not say which parts it uses")
    return () if found[1] == _NOTHING else tuple(part.strip() for part in found[1].split(","))


@cache
def part(name: str) -> Part:
    if name == _SCHEMA:
        return _schema()
    file = part_file(name)
    found: dict[str, Definition] = {}
    for lines in _statements(source(file)):
        match = _LOCAL.match(lines[0].text)
        assert match is not None, f"{lines[0].place}: not a definition: {lines[0].text}"
        definition = Definition(name, lines, _names(lines))
        for defined in match[1].split(","):
            assert defined.strip() not in found, f"{name}: {defined} is defined twice"
            found[defined.strip()] = definition
    return Part(used_parts(name, _read(file)), found)


def part_file(name: str) -> str:
    """The file of a part: in a folder of its own, or among all parts."""
    return f"{name}.lua" if "/" in name else f"parts/{name}.lua"


def _schema() -> Part:
    found: dict[str, Definition] = {}
    for name, (value, source) in definitions().items():
        lines = (Line(f"local {name} = {value}", f"schema/{source}.py", 0),)
        found[name] = Definition(_SCHEMA, lines, _names(lines))
    return Part((), found)


def _linked(lines: Sequence[Line], uses: tuple[str, ...], known: frozenset[Definition]) -> list[Line]:
    """The lines, preceded by the definitions that they need and that are not `known` yet. Marked
    blocks get their own definitions in the same way."""
    needed = [definition for definition in _needed(_names(lines), uses) if definition not in known]
    known = known.union(needed)
    linked: list[Line] = []
    for definition in needed:
        linked += _with_blocks(definition.lines, _scope(definition.part), known)
    return linked + _with_blocks(lines, uses, known)


def _with_blocks(lines: Sequence[Line], uses: tuple[str, ...], known: frozenset[Definition]) -> list[Line]:
    linked: list[Line] = []
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


def _block_end(lines: Sequence[Line], at: int) -> int:
    """The end of the block that is marked at this line: the first line with less indentation. `at`
    if the line is not a mark."""
    mark = _MARK.match(lines[at].text)
    if mark is None:
        return at
    end = at + 1
    while end < len(lines) and (not lines[end].text.strip() or lines[end].text.startswith(mark[1])):
        end += 1
    return end


def _needed(names: frozenset[str], uses: tuple[str, ...]) -> list[Definition]:
    """The definitions of these names in these parts, and the definitions that those need, in the
    order of the parts."""
    found = set[Definition]()
    unread = _named(names, uses)
    while unread:
        definition = unread.pop()
        if definition not in found:
            found.add(definition)
            unread += _needs(definition)
    return [definition for name in _in_order(uses) for definition in _definitions(name) if definition in found]


@cache
def _needs(definition: Definition) -> list[Definition]:
    """The definitions that a definition names."""
    return _named(definition.needs, _scope(definition.part))


def _named(names: frozenset[str], scope: tuple[str, ...]) -> list[Definition]:
    known = _visible(scope)
    return [known[name] for name in names if name in known]


@cache
def _visible(scope: tuple[str, ...]) -> Mapping[str, Definition]:
    """The definitions of these parts and of the schema by name. The first part that has a name
    counts."""
    found: dict[str, Definition] = {}
    for name in (_SCHEMA, *reversed(scope)):
        found.update(part(name).definitions)
    return found


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

    for name in (_SCHEMA, *uses):
        add(name, ())
    return tuple(ordered)


def _statements(lines: Sequence[Line]) -> list[tuple[Line, ...]]:
    """The statements of a part. A statement starts at the margin and ends before the next line at
    the margin that is not its `end`."""
    found: list[list[Line]] = []
    for line in lines:
        if line.text.startswith("--") or not line.text.strip():
            continue
        if line.text.startswith(" ") or line.text == "end":
            found[-1].append(line)
        else:
            found.append([line])
    return [tuple(lines) for lines in found]


def _names(lines: Sequence[Line]) -> frozenset[str]:
    outside: list[str] = []
    at = 0
    while at < len(lines):
        end = _block_end(lines, at)
        outside += [lines[at].text] if end == at else ()
        at = max(end, at + 1)
    return frozenset(_NAME.findall(_HIDDEN.sub("", "\n".join(outside))))


def _read(path: str) -> str:
    if path == part_file(_LOCATIONS):
        return locations.functions({of: frozenset(part(f"locations/{of}").definitions) for of in locations.FILES})
    return (files("docket.storage") / "lua" / path).read_text()


def show(name: str) -> str:
    """The script that the server runs, each line with its number and where it is written."""
    lines = load(name).lines
    width = max(len(line.place) for line in lines)
    return "".join(f"{number:5}  {line.place:{width}}  {line.text}\n" for number, line in enumerate(lines, 1))


if __name__ == "__main__":
    sys.stdout.write("".join(show(name) for name in sys.argv[1:]))
