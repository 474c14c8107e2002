"""The envelope round every payload, and the default codec inside it."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, NoReturn, Protocol, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it ships none

from docket.errors import Undecodable, UnknownVersion

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


def _refuse_file(file: Any) -> Any:
    for name in ("stdin", "stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    raise TypeError("an open file stays in its process; pass its path, or what it contains")


_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_Base: Any = cast(Any, cloudpickle).Pickler


class _Pickler(_Base):
    """cloudpickle, which alone would store what a text file has left to read, without a word."""

    dispatch_table = _Base.dispatch_table.new_child(dict.fromkeys(_FILES, _refuse_file))


def _cloudpickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


DEFAULT = PickleCodec()
_PREFIX = bytes((VERSION, DEFAULT.id, 0))


def seal(value: Any) -> bytes:
    return _PREFIX + DEFAULT.encode(value)


def bare(sealed: bytes) -> bytes:
    """The pickle inside, as clients read it that know nothing of envelopes."""
    return sealed[_HEADER:]


def enveloped(data: bytes) -> bytes:
    """Puts a pickle of another client into an envelope; what is in one already stays as it is."""
    return _PREFIX + data if data[:1] == pickle.PROTO else data


def open_envelope(data: bytes, at: int = 0) -> Any:
    """The value inside the envelope that begins there. Whatever goes wrong is Undecodable, never another exception."""
    start = at + _HEADER
    if data[at:start] != _PREFIX:
        _refuse(data[at:start])
    try:
        return DEFAULT.decode(data[start:])
    except BaseException as error:
        # Whatever a payload raises while it is read, SystemExit included, is the fault of that payload.
        raise Undecodable(f"payload cannot be decoded: {_shown(error)}"[:500]) from error


def _refuse(header: bytes) -> NoReturn:
    if len(header) < _HEADER:
        raise Undecodable(f"payload of {len(header)} bytes is no envelope")
    version, codec_id, flags = header
    raise UnknownVersion(f"payload of version {version}, codec {codec_id}, flags {flags}: written by a newer release")


def _shown(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__
