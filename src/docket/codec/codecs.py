"""The codecs that docket knows. To add a codec, add
a module to this package, and a line to `codec_named` and to `CODEC_IDS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from .json_codec import JsonCodec
from .pickle_codec import PickleCodec

Function = Callable[..., Any]


class Codec(Protocol):
    """Converts calls, results and exceptions to bytes and back. The id is stored with every payload
    and must never change.

    `function` is the task function, or None if this process does not know it. Encoding raises
    Unserializable, decoding raises Undecodable, whatever is wrong with the value or the bytes.
    """

    id: int
    name: str
    # Whether decoding can run code that the bytes name.
    runs_code: bool

    def encode_call(self, function: Function | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes: ...

    def decode_call(self, function: Function | None, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

    def encode_result(self, function: Function | None, value: Any) -> bytes: ...

    def decode_result(self, function: Function | None, body: bytes) -> Any: ...

    def encode_error(self, error: BaseException, most: int | None) -> bytes:
        """The exception itself if it can be stored in `most` bytes, otherwise a TaskFailed with its
        text; and its traceback, if there is space for it. Does not fail."""
        ...

    def decode_error(self, body: bytes) -> Exception:
        """The exception, with its traceback as a note."""
        ...

    def read_traceback(self, body: bytes) -> str | None:
        """The traceback of an encoded exception, or None. Decodes nothing else, and does not
        fail."""
        ...


PICKLE: Codec = PickleCodec()
# The ids of all codecs of this release, by name.
CODEC_IDS: dict[str, int] = {PickleCodec.name: PickleCodec.id, JsonCodec.name: JsonCodec.id}


def codec_named(name: str, exceptions: Iterable[type[Exception]] = ()) -> Codec:
    """Raises ValueError for an unknown name, and MissingPackage if its package is not installed.
    `exceptions` are the types that the codec may raise again."""
    if name == PICKLE.name:
        return PICKLE
    if name == JsonCodec.name:
        return JsonCodec(exceptions)
    known = ", ".join(map(repr, CODEC_IDS))
    raise ValueError(f"{name!r} is not a codec: use one of {known}")
