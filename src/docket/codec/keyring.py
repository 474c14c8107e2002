"""The keys with which a docket signs its payloads."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

# BLAKE2b takes keys of up to 64 bytes.
SHORTEST, LONGEST = 32, 64
_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
_MAKE_ONE = "`openssl rand -base64 32` makes one"


class Keyring:
    """Keys by id. The first key signs, all keys verify.

    A key is 32 to 64 random bytes. Ids are public: they are stored with every payload. Raises
    ValueError for an id or a key that is not valid.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise ValueError("a keyring needs at least one key")
        for id, key in keys.items():
            if not _ID.fullmatch(id):
                raise ValueError(f"{id!r} is not the id of a key: use up to 32 letters, digits, dots, dashes and _")
            if not SHORTEST <= len(key) <= LONGEST:
                raise ValueError(
                    f"key {id!r} has {len(key)} bytes, but a key has {SHORTEST} to {LONGEST} random bytes; {_MAKE_ONE}"
                )
        self._keys = dict(keys)

    def __repr__(self) -> str:
        return f"<Keyring {', '.join(self._keys)}>"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, the signing key first."""
        return tuple(self._keys)

    def secret(self, id: str) -> bytes:
        """The bytes of a key. Raises KeyError."""
        return self._keys[id]

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads lines of the form `id:base64`. Empty lines, and lines that begin with #, do not
        count. Errors name the line, not its content."""
        keys: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            id, separator, encoded = line.partition(":")
            if not separator:
                raise ValueError(f"line {number} is not a key: a key is id:base64; {_MAKE_ONE}")
            if id in keys:
                raise ValueError(f"line {number}: there are two keys with the id {id!r}")
            try:
                keys[id] = base64.b64decode(encoded.strip(), validate=True)
            except (binascii.Error, ValueError):
                raise ValueError(f"line {number}: key {id!r} is not base64; {_MAKE_ONE}") from None
        return cls(keys)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Reads the keys from a file. Raises ValueError if the file cannot be read, is not a list
        of keys, or can be written by everybody."""
        file = Path(path)
        try:
            if file.stat().st_mode & stat.S_IWOTH:
                raise ValueError(f"{file}: everybody may write to this file of keys; `chmod o-w` protects it")
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{file}: the signing keys cannot be read: {error}") from None
        try:
            return cls.from_text(text)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None


def as_keyring(signing: Keyring | str | os.PathLike[str] | None) -> Keyring | None:
    """A keyring itself, or the keyring in the file of that name."""
    return signing if signing is None or isinstance(signing, Keyring) else Keyring.from_file(signing)
