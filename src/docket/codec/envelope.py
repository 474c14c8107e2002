"""The envelope around every stored value. It names the codec that wrote the value."""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

from docket.errors import Undecodable, UnknownVersion

from .codecs import CODECS, DEFAULT

VERSION = 1
_HEADER = 3  # version, codec, flags

# The envelope header of each codec.
_PREFIXES = {name: bytes((VERSION, codec.id, 0)) for name, codec in CODECS.items()}
_READERS = {_PREFIXES[name]: codec.decode for name, codec in CODECS.items()}
_PREFIX, _encode = _PREFIXES[DEFAULT], CODECS[DEFAULT].encode
_PICKLE_PREFIX = _PREFIXES["pickle"]


def seal(value: Any) -> bytes:
    return _PREFIX + _encode(value)


def bare(sealed: bytes) -> bytes:
    """The pickle inside, for clients that do not know envelopes."""
    return sealed[_HEADER:]


def enveloped(data: bytes) -> bytes:
    """Puts another client's pickle into an envelope.
    Data that already has an envelope does not change."""
    return _PICKLE_PREFIX + data if data[:1] == pickle.PROTO else data


def open_envelope(data: bytes, at: int = 0) -> Any:
    """The value in the envelope that begins at `at`. Every failure raises Undecodable."""
    start = at + _HEADER
    decode = _READERS.get(data[at:start])
    if decode is None:
        _refuse(data[at:start])
    try:
        return decode(data[start:])
    except BaseException as error:
        # Unpickling can raise any exception, even SystemExit.
        # It must not end the process that reads the value.
        raise Undecodable(f"payload cannot be decoded: {_shown(error)}"[:500]) from error


def _refuse(header: bytes) -> NoReturn:
    if len(header) < _HEADER:
        raise Undecodable(f"payload of {len(header)} bytes is not an envelope")
    version, codec_id, flags = header
    raise UnknownVersion(f"payload of version {version}, codec {codec_id}, flags {flags}: written by a newer release")


def _shown(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__
