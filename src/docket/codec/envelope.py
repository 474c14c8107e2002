"""The envelope round every payload, and the default codec inside it."""

from __future__ import annotations

import io
import pickle
from typing import Any, Protocol, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it ships none

from docket.model.errors import Undecodable, UnknownVersion

VERSION = 1
_HEADER = 3  # version, codec, flags


class Codec(Protocol):
    """Turns values into bytes and back. Its id is stored with every payload and must never change."""

    id: int

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: memoryview | bytes) -> Any: ...


class PickleCodec:
    """Any picklable Python value; what pickle cannot do (lambdas, things of __main__) goes by cloudpickle."""

    id = 1

    def encode(self, value: Any) -> bytes:
        try:
            data = pickle.dumps(value, protocol=5)
        except Exception:
            return _cloudpickle(value)
        # pickle stores things of __main__ by reference, and a worker has another __main__.
        return _cloudpickle(value) if b"__main__" in data else data

    def decode(self, data: memoryview | bytes) -> Any:
        return pickle.loads(data)


def _cloudpickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    cast(Any, cloudpickle).Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


DEFAULT = PickleCodec()
_CODECS: dict[int, Codec] = {DEFAULT.id: DEFAULT}
_PREFIX = bytes((VERSION, DEFAULT.id, 0))


def seal(value: Any) -> bytes:
    return _PREFIX + DEFAULT.encode(value)


def open_envelope(data: bytes) -> Any:
    """The value inside. Whatever goes wrong is Undecodable, never another exception."""
    if len(data) < _HEADER:
        raise Undecodable(f"payload of {len(data)} bytes is no envelope")
    version, codec_id, flags = data[0], data[1], data[2]
    codec = _CODECS.get(codec_id)
    if version != VERSION or codec is None or flags:
        raise UnknownVersion(
            f"payload of version {version}, codec {codec_id}, flags {flags}: written by a newer release"
        )
    try:
        return codec.decode(memoryview(data)[_HEADER:])
    except BaseException as error:
        # Whatever a payload raises while it is read, SystemExit included, is the fault of that payload.
        raise Undecodable(f"payload cannot be decoded: {_shown(error)}"[:500]) from error


def _shown(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__
