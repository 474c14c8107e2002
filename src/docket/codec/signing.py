"""Signs payloads and verifies them (docs/design/payloads.md)."""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Any

from docket.errors import PayloadRefused, Undecodable, UnknownKey

from .envelope import HEADER_SIZE, SIGNED, header
from .keyring import Keyring

CALL, ENDING, STRIKE, PAUSE = b"call", b"ending", b"strike", b"pause"
PURPOSES = (CALL, ENDING, STRIKE, PAUSE)
TAG_SIZE = 16
_DERIVATION = b"docket payload 1"


def derive(secret: bytes, purpose: bytes, docket: str) -> bytes:
    """The key of one purpose in one docket."""
    parts = (_DERIVATION, purpose, docket.encode("utf-8", "surrogatepass"))
    return blake2b(b"".join(part + b"\0" for part in parts), key=secret, digest_size=32).digest()


class Signer:
    """Signs the payloads of one docket with the first key of its keyring, and verifies with all."""

    def __init__(self, keyring: Keyring, docket: str) -> None:
        self._own_id = packed_id(keyring.ids[0])
        # The state of the hash after the key, by purpose and by the id of the key.
        self._states: dict[bytes, dict[bytes, Any]] = {
            purpose: {
                id.encode(): blake2b(key=derive(keyring.secret(id), purpose, docket), digest_size=TAG_SIZE)
                for id in keyring.ids
            }
            for purpose in PURPOSES
        }
        self._own_states = {purpose: states[keyring.ids[0].encode()] for purpose, states in self._states.items()}

    def header(self, codec_id: int) -> bytes:
        """The header of payloads that this signer seals."""
        return header(codec_id, SIGNED) + self._own_id

    def seal(self, purpose: bytes, address: bytes, head: bytes, body: bytes) -> bytes:
        """The payload. `head` ends with the header."""
        digest = self._own_states[purpose].copy()
        digest.update(address + head + body)
        return head + digest.digest() + body

    def open(self, purpose: bytes, address: bytes, data: bytes, at: int) -> bytes:
        """The body of the payload whose envelope begins at `at`.

        Raises UnknownKey, PayloadRefused or Undecodable. Then nothing was decoded.
        """
        id, start = key_id(data, at)
        state = self._states[purpose].get(id)
        if state is None:
            raise unknown_key(id)
        return _verified(state, address, data, start)

    def open_own(self, purpose: bytes, address: bytes, data: bytes, start: int) -> bytes:
        """The same for a payload of the key that signs. Its tag begins at `start`."""
        return _verified(self._own_states[purpose], address, data, start)


def _verified(state: Any, address: bytes, data: bytes, start: int) -> bytes:
    end = start + TAG_SIZE
    body = data[end:]
    digest = state.copy()
    digest.update(address + data[:start] + body)
    if not compare_digest(digest.digest(), data[start:end]):
        raise forged()
    return body


def packed_id(id: str) -> bytes:
    return bytes((len(id),)) + id.encode()


def key_id(data: bytes, at: int) -> tuple[bytes, int]:
    """The id of the key in an envelope, and where it ends."""
    at += HEADER_SIZE
    start = at + 1 + (data[at] if at < len(data) else 0)
    if start + TAG_SIZE > len(data):
        raise Undecodable("the payload is too short for its tag")
    return data[at + 1 : start], start


def unknown_key(id: bytes) -> UnknownKey:
    return UnknownKey(f"the payload is sealed with key {_shown(id)}, which this process does not have")


def forged() -> PayloadRefused:
    return PayloadRefused("the tag of the payload does not hold: it was changed, or it was sealed for another task")


def _shown(id: bytes) -> str:
    return repr(id.decode("ascii", "backslashreplace")[:32])
