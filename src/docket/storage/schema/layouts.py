"""The fixed part of a record: fields in sequence, little-endian. Scripts get the same as formats,
sizes and positions."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. `format` is that of Python's struct; a text is its size in two bytes and
    then its bytes."""

    format: str
    # The value in a new record, if the script does not give the field.
    default: str | None = None
    # The size of this other field, which follows the fixed part.
    size_of: str | None = None
    # Tables in scripts may lack the field: then it has its default.
    may_lack: bool = False
    is_text: bool = False

    @property
    def lua_format(self) -> str:
        return {"B": "B", "H": "H", "I": "I4", "d": "d"}[self.format] + ("c0" if self.is_text else "")


def u8(default: int | None = None, *, may_lack: bool = False) -> Field:
    return Field("B", _text(default), may_lack=may_lack)


def u16(size_of: str | None = None) -> Field:
    return Field("H", size_of=size_of)


def u32(default: int | None = None, size_of: str | None = None) -> Field:
    return Field("I", _text(default), size_of)


def f64() -> Field:
    return Field("d")


def text() -> Field:
    return Field("H", is_text=True)


def _text(default: int | None) -> str | None:
    return None if default is None else str(default)


@dataclass(frozen=True)
class Layout:
    """The fields by name, in sequence. Texts come last."""

    fields: dict[str, Field]
    # Of the fields that are not texts.
    struct: struct.Struct = field(init=False)

    def __post_init__(self) -> None:
        formats = "".join(known.format for known in self.fields.values() if not known.is_text)
        object.__setattr__(self, "struct", struct.Struct(f"<{formats}"))

    @property
    def size(self) -> int:
        return self.struct.size

    @property
    def lua_format(self) -> str:
        return "<" + "".join(known.lua_format for known in self.fields.values())

    def at(self, name: str) -> int:
        """The offset of a field, counted from 0. Only the first text has one: that of its size."""
        before = list(self.fields)[: list(self.fields).index(name)]
        return struct.calcsize("<" + "".join(self.fields[other].format for other in before))

    def piece(self, first: str, last: str) -> Layout:
        """The fields from one to another. `…_size` instead of the last text is its size alone."""
        names = list(self.fields)
        text = last.removesuffix("_size")
        is_size = last not in names
        chosen = names[names.index(first) : names.index(text if is_size else last) + 1]
        fields = {name: self.fields[name] for name in chosen}
        if is_size:
            fields[last] = replace(fields.pop(text), is_text=False)
        return Layout(fields)


def layout(**fields: Field) -> Layout:
    return Layout(fields)
