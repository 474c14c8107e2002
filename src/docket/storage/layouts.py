"""The fixed part of a record: named fields in sequence, little-endian."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """The names and formats of the fields. The scripts have the same in lua/parts/records.lua; a
    test compares the two.

    `texts` are further fields, each with its length before it (2 bytes).
    """

    format: str
    names: str
    texts: str = ""
    struct: struct.Struct = field(init=False)

    def __post_init__(self) -> None:
        assert len(self.fields) == len(self.format), f"{self.format} is not for {self.names}"
        object.__setattr__(self, "struct", struct.Struct(f"<{self.format}"))

    @property
    def fields(self) -> list[str]:
        return self.names.split(", ")

    @property
    def size(self) -> int:
        return self.struct.size

    def at(self, name: str) -> int:
        """The offset of a field, counted from 0."""
        return struct.calcsize("<" + self.format[: self.fields.index(name)])
