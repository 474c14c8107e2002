"""The codecs that docket knows. To add a codec, add
a module to this package and an entry to CODECS."""

from __future__ import annotations

from typing import Any, Protocol

from .pickle_codec import PickleCodec


class Codec(Protocol):
    """Converts values to bytes and back. The id is
    stored with every value and must never change."""

    id: int

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: memoryview | bytes) -> Any: ...


# Codecs by name. docket reads values of every codec, by its id, and writes with the default codec.
CODECS: dict[str, Codec] = {
    "pickle": PickleCodec(),
}
DEFAULT = "pickle"
