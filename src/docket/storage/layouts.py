"""The fixed part of a record: named fields, one after the other, little-endian."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """The fields by their names and formats. The scripts have the same in lua/parts/records.lua,
    and a test compares the two.

    `texts` are fields that follow, each with its length before it (2 bytes).
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
        """Where a field begins, counted from 0."""
        return struct.calcsize("<" + self.format[: self.fields.index(name)])
