"""The envelope around every payload (docs/design/payloads.md)."""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

from docket.errors import Undecodable, UnknownVersion

from .codecs import PICKLE

VERSION = 1
HEADER_SIZE = 3  # version, codec, flags
PLAIN = 0


def header(codec_id: int, flags: int = PLAIN) -> bytes:
    return bytes((VERSION, codec_id, flags))


_PICKLE_HEADER = header(PICKLE.id)


def enveloped(data: bytes) -> bytes:
    """Puts another client's pickle into an envelope.
    Data that already has an envelope does not change."""
    return _PICKLE_HEADER + data if data[:1] == pickle.PROTO else data


def raise_unreadable(header: bytes) -> NoReturn:
    """Raises the error for a header that no reader knows."""
    if len(header) < HEADER_SIZE:
        raise Undecodable(f"payload of {len(header)} bytes is not an envelope")
    version, codec_id, flags = header
    raise UnknownVersion(f"payload of version {version}, codec {codec_id}, flags {flags}: written by a newer release")


def seal(value: Any) -> bytes:
    """A single pickled value in an envelope."""
    return _PICKLE_HEADER + PICKLE.encode_result(None, value)


def open_envelope(data: bytes) -> Any:
    """Reads what `seal` wrote. Every failure raises Undecodable."""
    if data[:HEADER_SIZE] != _PICKLE_HEADER:
        raise_unreadable(data[:HEADER_SIZE])
    return PICKLE.decode_result(None, data[HEADER_SIZE:])
