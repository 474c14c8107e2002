"""Converts arguments, results and exceptions to bytes and back.

Each docket has a `Payloads` object. It seals every value in an envelope, which names the codec that
made the bytes, and opens it again.
"""

from .codecs import Codec, codec_named
from .error_texts import error_text
from .keyring import Keyring
from .payloads import Payloads

__all__ = ["Codec", "Keyring", "Payloads", "codec_named", "error_text"]
