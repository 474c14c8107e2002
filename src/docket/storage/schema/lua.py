"""The schema as Lua: definitions that scripts use by name, and the fields of a record or a row in a
line of a script.

`$TASK_HEADER{location = SCHEDULED, …}` is the format of the record and then the value of each
field; `$TASK_HEADER(location, due = at)` is the names into which a script unpacks it, `_` for a
field that it does not need. `task.*` stands for all other fields, in `task`; `*` for all others
under their own names. The rows of requests and answers have the same, without a format;
`$NewCall.mode` is the position of a field, `$#NewCall` the number of fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import cast

from . import keys, locations, records, requests, settlements, statistics
from .keys import Key
from .layouts import Field, Layout

_MODULES = (keys, locations, records, settlements, requests, statistics)
_USE = re.compile(r"\$(#?)([A-Za-z]\w*)([({.]?)")
_FIELD = re.compile(r"(\w+) = (.+)")
_BRACKETS = {"(": ")", "{": "}", "[": "]"}


@cache
def definitions() -> Mapping[str, tuple[str, str]]:
    """The value of each name, after those that it needs, and the module that declares it."""
    found = {"P": ("KEYS[1]", "keys")}
    for module in _MODULES:
        for name, value in vars(module).items():
            if name.isupper():
                source = module.__name__.rpartition(".")[2]
                found |= {defined: (text, source) for defined, text in _definitions(name, value).items()}
    return found


def _definitions(name: str, value: object) -> dict[str, str]:
    match value:
        case Key():
            return {name: f"P .. '{value.name}'"}
        case Layout():
            return dict(_layout(name, value))
        case int():
            return {name: str(value)}
        case str():
            return {name: _quoted(value.encode())}
        case bytes():
            return {name: _quoted(value)}
        case frozenset():
            members = sorted(cast("frozenset[int]", value))
            return {name: f"{{{', '.join(f'[{member}] = true' for member in members)}}}"}
        case tuple():
            members = cast("tuple[object, ...]", value)
            texts = (_quoted(member.encode()) if isinstance(member, str) else str(member) for member in members)
            return {name: f"{{{', '.join(texts)}}}"}
        case _:
            return {}


def _layout(name: str, layout: Layout) -> Iterator[tuple[str, str]]:
    """The format, the size, and where each field begins and ends, counted from 1."""
    yield name, f"'{layout.lua_format}'"
    yield f"{name}_SIZE", str(layout.size)
    prefix, texts = name.removesuffix("_HEADER"), 0
    for field, known in layout.fields.items():
        texts += known.is_text
        if texts < 2:
            yield f"{prefix}_{field.upper()}_AT", str(layout.at(field) + 1)
        if not texts:
            yield f"{prefix}_{field.upper()}_END", str(layout.piece(next(iter(layout.fields)), field).size)


def _quoted(data: bytes) -> str:
    return "'" + "".join(chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\{byte}" for byte in data) + "'"


def expanded(line: str) -> str:
    """The line with the fields that it names. Raises ValueError for fields that are not there."""
    at = 0
    while (use := _USE.search(line, at)) is not None:
        text, end = _expansion(line, use)
        line = line[: use.start()] + text + line[end:]
        at = use.start()
    return line


def _expansion(line: str, use: re.Match[str]) -> tuple[str, int]:
    layout = _layouts().get(use[2])
    if layout is None:
        raise ValueError(f"the schema has no {use[2]}: {line.strip()}")
    names = list(layout)
    if use[1]:
        return str(len(names)), use.end(2)
    if use[3] == ".":
        field = re.compile(r"\w+").match(line, use.end())
        if field is None or field[0] not in names:
            raise ValueError(f"{use[2]} has no such field: {line.strip()}")
        return str(names.index(field[0]) + 1), field.end()
    if not use[3]:
        raise ValueError(f"{use[2]}: say which fields: {line.strip()}")
    inner, end = _inner(line, use.end() - 1)
    named, spread = _named(_parts(inner))
    if not named.keys() <= layout.keys():
        raise ValueError(f"{use[2]} has no field {', '.join(named.keys() - layout.keys())}")
    if use[3] == "(":
        return ", ".join(_targets(layout, named, spread)), end
    values = [value for name, field in layout.items() for value in _values(use[2], name, field, named, spread)]
    return ", ".join([use[2], *values] if use[2].isupper() else values), end


@cache
def _layouts() -> Mapping[str, Mapping[str, Field]]:
    """The fields of each layout and of each row, by its name."""
    found: dict[str, Mapping[str, Field]] = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Layout):
                found[name] = value.fields
            elif isinstance(value, type) and hasattr(value, "_fields") and value is not Key:
                found[name] = {field: Field("") for field in vars(value)["_fields"]}
    return found


def _inner(line: str, at: int) -> tuple[str, int]:
    """The text between the bracket there and its counterpart, and the position behind that."""
    open_ones = list[str]()
    for end, letter in enumerate(line[at:], at):
        if letter in _BRACKETS:
            open_ones.append(_BRACKETS[letter])
        elif open_ones and letter == open_ones[-1]:
            open_ones.pop()
            if not open_ones:
                return line[at + 1 : end], end + 1
    raise ValueError(f"a bracket is not closed in this line: {line.strip()}")


def _parts(inner: str) -> Iterator[str]:
    """The parts between commas that are not in brackets."""
    depth, begin = 0, 0
    for at, letter in enumerate(inner + ","):
        if letter == "," and depth == 0:
            yield inner[begin:at].strip()
            begin = at + 1
        depth += (letter in "({[") - (letter in ")}]")


def _named(parts: Iterator[str]) -> tuple[dict[str, str], str | None]:
    """Fields with their values or variables, and the prefix of all others, if the text has it."""
    named: dict[str, str] = {}
    spread: str | None = None
    for part in parts:
        field = _FIELD.fullmatch(part)
        if field is not None:
            named[field[1]] = field[2]
        elif part.endswith("*"):
            spread = part[:-1]
        else:
            named[part] = part
    return named, spread


def _targets(layout: Mapping[str, Field], named: Mapping[str, str], spread: str | None) -> Sequence[str]:
    targets = [named.get(name, "_" if spread is None else f"{spread}{name}") for name in layout]
    while targets[-1] == "_":
        targets.pop()
    return targets


def _values(layout: str, name: str, field: Field, named: Mapping[str, str], spread: str | None) -> Iterator[str]:
    value = named.get(name)
    if value is None and spread is not None:
        value = f"#{spread}{field.size_of}" if field.size_of is not None else f"{spread}{name}"
        if field.may_lack:
            value += f" or {field.default}"
    if value is None:
        value = field.default
    if value is None:
        raise ValueError(f"{layout} needs a value for {name}")
    if field.is_text:
        yield str(len(value) - 2) if value.startswith("'") else f"#{value}"
    yield value
