"""Converts arguments, results and exceptions to bytes and back.

Every stored value has an envelope (version, codec, flags) around the codec's bytes. The envelope
allows other codecs, signing and encryption without a change to the ledger.
"""

from .codecs import Codec
from .envelope import open_envelope, seal
from .pickle_codec import PickleCodec
from .task_values import (
    decode_call,
    decode_error,
    decode_result,
    encode_call,
    encode_error,
    encode_result,
    error_text,
)

__all__ = [
    "Codec",
    "PickleCodec",
    "decode_call",
    "decode_error",
    "decode_result",
    "encode_call",
    "encode_error",
    "encode_result",
    "error_text",
    "open_envelope",
    "seal",
]
