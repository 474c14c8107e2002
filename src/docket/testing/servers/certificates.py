"""Certificates for servers that speak TLS, made with the command `openssl`.

A server that speaks TLS needs OpenSSL itself, so the command is rarely missing, and docket needs no
further package for it.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .binaries import ServerNotFound

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = ("-days", "2")
_AUTHORITY = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_LEAF = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True)
class Certificates:
    """The files of a certificate authority, and of a certificate that it has signed."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, *names: str) -> Certificates:
    """Makes an authority and a certificate for these names (`DNS:localhost`, `IP:127.0.0.1`; both
    by default) in the folder. Raises ServerNotFound if there is no `openssl` on this machine."""
    if shutil.which("openssl") is None:
        raise ServerNotFound("servers with TLS need the command openssl, which is not on this machine")
    made = Certificates(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    settings, extensions = folder / "authority.cnf", folder / "certificate.cnf"
    settings.write_text(_AUTHORITY)
    extensions.write_text(_LEAF.format(names=", ".join(names or ("DNS:localhost", "IP:127.0.0.1"))))
    authority_key, request = folder / "authority-key.pem", folder / "request.pem"
    signer = ("-CA", made.authority, "-CAkey", authority_key, "-CAcreateserial")
    authority = ("-config", settings, "-extensions", "authority", "-subj", "/CN=docket test authority")
    _openssl("req", "-x509", *_KEY, *_DAYS, *authority, "-keyout", authority_key, "-out", made.authority)
    _openssl(
        "req", "-new", *_KEY, "-config", settings, "-subj", "/CN=docket test", "-keyout", made.key, "-out", request
    )
    _openssl("x509", "-req", "-in", request, *signer, *_DAYS, "-extfile", extensions, "-out", made.certificate)
    return made


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerNotFound(f"openssl {words[0]} failed: {done.stderr.strip()}")
