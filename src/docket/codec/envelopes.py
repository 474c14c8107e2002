"""Seals bytes in envelopes and opens them: plain, signed or encrypted, each for its address
(docs/design/payloads.md)."""

from __future__ import annotations

import importlib
import os
import pickle
import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, NoReturn

from docket.errors import MissingPackage, PayloadRefused, Undecodable, UnknownKey, UnknownVersion
from docket.model.states import STATE_NUMBERS, ExecutionState

from .codecs import CODEC_IDS, PICKLE
from .keyring import Keyring

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


RESULT, ERROR = 1, 2
_MOST = 2**64 - 1
_RUN = struct.Struct("<QBB")
_LENGTH = struct.Struct("<I").pack


def call_address(key: str, function_name: str) -> bytes:
    return _text(key) + _text(function_name)


def ending_address(key: str, epoch: int, state: ExecutionState, kind: int) -> bytes:
    # A record may claim any epoch. No payload is sealed for the largest one.
    return _text(key) + _RUN.pack(epoch if 0 <= epoch < _MOST else _MOST, STATE_NUMBERS[state], kind)


def _text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return _LENGTH(len(data)) + data


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
        """Opens a payload of the key that signs. Its tag begins at `start`."""
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


# The first half of a nonce derives the key of its payload, the second half is GCM's nonce.
_HALF_NONCE = 12
_NONCE = 2 * _HALF_NONCE


class Encrypter:
    """Encrypts the payloads of one docket with the first key of its keyring, and decrypts with all.
    Raises MissingPackage without the package `cryptography`."""

    def __init__(self, keyring: Keyring, docket: str) -> None:
        try:
            self._aes_gcm: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
            self._invalid_tag: Any = importlib.import_module("cryptography.exceptions").InvalidTag
        except ImportError as error:
            raise MissingPackage(
                "encrypted payloads need the package cryptography: pip install 'docket[crypto]'"
            ) from error
        self._own_id = packed_id(keyring.ids[0])
        self._secrets = {
            purpose: {id.encode(): derive(keyring.secret(id), purpose + b" encryption", docket) for id in keyring.ids}
            for purpose in PURPOSES
        }
        self._own_secrets = {purpose: secrets[keyring.ids[0].encode()] for purpose, secrets in self._secrets.items()}

    def header(self, codec_id: int) -> bytes:
        """The header of payloads that this object seals."""
        return header(codec_id, ENCRYPTED) + self._own_id

    def seal(self, purpose: bytes, address: bytes, head: bytes, body: bytes) -> bytes:
        """The payload. `head` ends with the header."""
        nonce = os.urandom(_NONCE)
        cipher = self._cipher(self._own_secrets[purpose], nonce)
        return head + nonce + cipher.encrypt(nonce[_HALF_NONCE:], body, address + head)

    def open(self, purpose: bytes, address: bytes, data: bytes, at: int) -> bytes:
        """The body of the payload whose envelope begins at `at`. Raises UnknownKey, PayloadRefused
        or Undecodable."""
        id, start = key_id(data, at)
        secret = self._secrets[purpose].get(id)
        if secret is None:
            raise unknown_key(id)
        return self._decrypted(secret, address, data, start)

    def open_own(self, purpose: bytes, address: bytes, data: bytes, start: int) -> bytes:
        """Opens a payload of the key that encrypts. Its nonce begins at `start`."""
        return self._decrypted(self._own_secrets[purpose], address, data, start)

    def _decrypted(self, secret: bytes, address: bytes, data: bytes, start: int) -> bytes:
        nonce, ciphertext = data[start : start + _NONCE], data[start + _NONCE :]
        try:
            return self._cipher(secret, nonce).decrypt(nonce[_HALF_NONCE:], ciphertext, address + data[:start])
        except (self._invalid_tag, ValueError):
            raise forged() from None

    def _cipher(self, secret: bytes, nonce: bytes) -> Any:
        return self._aes_gcm(blake2b(nonce[:_HALF_NONCE], key=secret, digest_size=32).digest())


class Envelopes:
    """The envelopes of one docket. With a keyring, every envelope is signed or encrypted. Then an
    envelope that is neither is refused, unless `accepts_unsigned` is True."""

    def __init__(self, docket: str, keyring: Keyring | None, *, encrypt: bool, accepts_unsigned: bool) -> None:
        self._docket = docket
        self._keyring = keyring
        self.accepts_plain: bool = keyring is None or accepts_unsigned
        self._signer = Signer(keyring, docket) if keyring is not None else None
        # Made when the first encrypted payload arrives, unless this docket encrypts itself.
        self._encrypter = Encrypter(keyring, docket) if keyring is not None and encrypt else None
        # None if this docket seals without a key.
        self.sealer: Signer | Encrypter | None = self._encrypter or self._signer

    def header(self, codec_id: int) -> bytes:
        return header(codec_id) if self.sealer is None else self.sealer.header(codec_id)

    def seal(self, purpose: bytes, address: bytes, head: bytes, body: bytes) -> bytes:
        """`head` ends with the header."""
        return head + body if self.sealer is None else self.sealer.seal(purpose, address, head, body)

    def open(self, purpose: bytes, address: bytes, data: bytes, at: int = 0) -> tuple[int, bytes]:
        """The codec and the body of the payload whose envelope begins at `at`. Everything before
        it belongs to the payload, too.

        Raises UnknownVersion, UnknownKey, PayloadRefused or Undecodable. Then nothing was decoded.
        """
        codec_id, flags = read_header(data, at)
        if flags == PLAIN:
            if not self.accepts_plain:
                raise PayloadRefused("the payload is not signed, but this docket has a keyring", "unsigned")
            return codec_id, data[at + HEADER_SIZE :]
        if self._keyring is None:
            raise unknown_key(key_id(data, at)[0])
        opener = self._decrypter(self._keyring) if flags == ENCRYPTED else self._signer
        assert opener is not None
        return codec_id, opener.open(purpose, address, data, at)

    def _decrypter(self, keyring: Keyring) -> Encrypter:
        if self._encrypter is None:
            try:
                self._encrypter = Encrypter(keyring, self._docket)
            except MissingPackage as error:
                # Another worker may have the package.
                raise UnknownKey(str(error)) from error
        return self._encrypter
