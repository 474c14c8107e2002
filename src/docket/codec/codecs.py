"""The codecs that docket knows. A codec is a file beside this one, and a line in the table."""

from __future__ import annotations

from typing import Any, Protocol

from .pickle_codec import PickleCodec


class Codec(Protocol):
    """Turns values into bytes and back. Its id is
    stored with every payload and must never change."""

    id: int

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: memoryview | bytes) -> Any: ...


# By their names. Payloads of all of them are read, by the id; the default writes.
CODECS: dict[str, Codec] = {
    "pickle": PickleCodec(),
}
DEFAULT = "pickle"
