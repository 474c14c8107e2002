"""Proofs that a script sent a message (docs/design/proofs.md). lua/parts/proofs.lua computes the
same on the server; a test compares the two."""

from __future__ import annotations

import hashlib
import hmac
import secrets

_BLOCK = 64
PROOF_SIZE = 40


def new_secret() -> bytes:
    """A secret for a docket that has none: two keys of one block each."""
    return secrets.token_hex(_BLOCK).encode()


def proof(secret: bytes, purpose: bytes, subject: bytes, body: bytes) -> bytes:
    message = b"%b %d %b %b" % (purpose, len(subject), subject, body)
    inner = hashlib.sha1(secret[:_BLOCK] + message).hexdigest().encode()
    return hashlib.sha1(secret[_BLOCK:] + inner).hexdigest().encode()


def proven_body(secret: bytes | None, kind: bytes, purpose: bytes, subject: bytes, message: bytes) -> bytes | None:
    """The body of a message that begins with `kind` and its proof. None if the message has another
    form or the proof does not hold."""
    if secret is None or not message.startswith(kind):
        return None
    start = len(kind) + PROOF_SIZE
    given, body = message[len(kind) : start], message[start:]
    return body if hmac.compare_digest(given, proof(secret, purpose, subject, body)) else None
