"""Seals bytes in envelopes and opens them: plain, signed or encrypted (docs/design/payloads.md)."""

from __future__ import annotations

from docket.errors import MissingPackage, PayloadRefused, UnknownKey

from .encryption import Encrypter
from .envelope import ENCRYPTED, HEADER_SIZE, PLAIN, header, read_header
from .keyring import Keyring
from .signing import Signer, key_id, unknown_key


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
