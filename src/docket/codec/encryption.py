"""Encrypts payloads and decrypts them (docs/design/payloads.md)."""

from __future__ import annotations

import importlib
import os
from hashlib import blake2b
from typing import Any

from docket.errors import MissingPackage

from .envelope import ENCRYPTED, header
from .keyring import Keyring
from .signing import PURPOSES, derive, forged, key_id, packed_id, unknown_key

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
        """The same for a payload of the key that encrypts. Its nonce begins at `start`."""
        return self._decrypted(self._own_secrets[purpose], address, data, start)

    def _decrypted(self, secret: bytes, address: bytes, data: bytes, start: int) -> bytes:
        nonce, ciphertext = data[start : start + _NONCE], data[start + _NONCE :]
        try:
            return self._cipher(secret, nonce).decrypt(nonce[_HALF_NONCE:], ciphertext, address + data[:start])
        except (self._invalid_tag, ValueError):
            raise forged() from None

    def _cipher(self, secret: bytes, nonce: bytes) -> Any:
        return self._aes_gcm(blake2b(nonce[:_HALF_NONCE], key=secret, digest_size=32).digest())
