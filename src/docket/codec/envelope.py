"""The envelope around every payload (docs/design/payloads.md)."""

from __future__ import annotations

import pickle
from typing import NoReturn

from docket.errors import Undecodable, UnknownVersion

from .codecs import CODEC_IDS, PICKLE

VERSION = 1
HEADER_SIZE = 3  # version, codec, flags
PLAIN, SIGNED, ENCRYPTED = range(3)
# The body of a strike is not made by a codec.
STRIKE_CODEC = 3


def header(codec_id: int, flags: int = PLAIN) -> bytes:
    return bytes((VERSION, codec_id, flags))


_PICKLE_HEADER = header(PICKLE.id)


def enveloped(data: bytes) -> bytes:
    """Puts another client's pickle into an envelope.
    Data that already has an envelope does not change."""
    return _PICKLE_HEADER + data if data[:1] == pickle.PROTO else data


def read_header(data: bytes, at: int) -> tuple[int, int]:
    """The codec and the flags. Raises Undecodable or UnknownVersion."""
    found = data[at : at + HEADER_SIZE]
    if len(found) < HEADER_SIZE:
        raise Undecodable(f"payload of {len(found)} bytes is not an envelope")
    version, codec_id, flags = found
    if version != VERSION or flags > ENCRYPTED:
        raise_newer(found)
    return codec_id, flags


def is_newer(header: bytes) -> bool:
    """Whether this header of an envelope is one that only a newer release writes."""
    version, codec_id, flags = header
    return version != VERSION or flags > ENCRYPTED or codec_id not in CODEC_IDS.values()


def raise_newer(header: bytes) -> NoReturn:
    version, codec_id, flags = header
    raise UnknownVersion(f"payload of version {version}, codec {codec_id}, flags {flags}: written by a newer release")
