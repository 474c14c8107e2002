"""Parses the URL of a docket's server: its kind, its address and its options."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from redis import connection as redis_connection

from docket.errors import UnknownScheme


class ServerKind(enum.Enum):
    STANDALONE = "standalone"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"
    MEMORY = "memory"
    FOLDER = "folder"


# A user name that is shown.
_PLAIN = re.compile(r"[\w.-]*")
_PASSWORDS = re.compile(r"([^?&=]*(?:password|passwd|secret|token)[^?&=]*)=[^&]*", re.IGNORECASE)

SCHEMES = {
    "redis": ServerKind.STANDALONE,
    "rediss": ServerKind.STANDALONE,
    "unix": ServerKind.STANDALONE,
    "valkey": ServerKind.STANDALONE,
    "valkeys": ServerKind.STANDALONE,
    "redis+cluster": ServerKind.CLUSTER,
    "rediss+cluster": ServerKind.CLUSTER,
    "valkey+cluster": ServerKind.CLUSTER,
    "valkeys+cluster": ServerKind.CLUSTER,
    "redis+sentinel": ServerKind.SENTINEL,
    "rediss+sentinel": ServerKind.SENTINEL,
    "valkey+sentinel": ServerKind.SENTINEL,
    "valkeys+sentinel": ServerKind.SENTINEL,
    "memory": ServerKind.MEMORY,
    "embedded": ServerKind.FOLDER,
}


@dataclass(frozen=True)
class Address:
    """A parsed URL: the kind of server and what redis-py needs to connect to it."""

    kind: ServerKind
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    database: int = 0
    name: str = ""
    folder: Path | None = None
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_options: dict[str, Any] = field(default_factory=dict[str, Any])
    tls: bool = False


def parse(url: str) -> Address:
    """Parses a URL. Raises UnknownScheme if it cannot be read, TypeError if it is not a string."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance] - an environment variable that is not set
        raise TypeError(f"url={url!r}: the URL of a server is text, for instance 'redis://localhost:6379/0'")
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    kind = SCHEMES.get(scheme)
    if kind is None:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UnknownScheme(f"unknown scheme in the URL {hide_password(url)!r}: use one of {known}")
    if kind is ServerKind.MEMORY:
        return Address(kind, name=url.partition("://")[2])
    if kind is ServerKind.FOLDER:
        return Address(kind, folder=Path(unquote(urlsplit(url).netloc + urlsplit(url).path)))
    if kind is ServerKind.SENTINEL:
        return _parse_sentinel(url)
    plain = _plain_scheme(url)
    options = _options(plain)
    if _is_tls(scheme):
        options = _verified(options, url)
    path = urlsplit(plain).path.strip("/")
    if path and not path.isdigit() and not plain.startswith("unix:"):
        raise UnknownScheme(f"the database in {hide_password(url)!r} is not a number")
    database = int(options.pop("db", 0) or 0)
    return Address(kind, options, 0 if kind is ServerKind.CLUSTER else database, tls=_is_tls(scheme))


def hide_password(url: str) -> str:
    """The URL without its passwords, for people. Text before the last `@` counts as a login, even
    if the URL is malformed: a password may contain any character."""
    scheme, separator, rest = url.rpartition("://") if "@" in url.partition("://")[0] else url.partition("://")
    if not separator:
        scheme, rest = "", url
    rest = _PASSWORDS.sub(r"\1=***", rest)
    login, at, address = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not _PLAIN.fullmatch(user):
        user, colon = "", ":"
    shown = f"{user}{':***' if colon else ''}@" if at else ""
    return f"{scheme}{separator}{shown}{address}"


_YES, _NO = ("true", "1", "yes", "y", "t", "on"), ("false", "0", "no", "n", "f", "off")


def _plain_scheme(url: str) -> str:
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower().partition("+")[0]
    return f"{ {'valkey': 'redis', 'valkeys': 'rediss'}.get(scheme, scheme) }://{rest}"


def _options(url: str) -> dict[str, Any]:
    try:
        options: dict[str, Any] = dict(cast(Any, redis_connection).parse_url(url))
    except ValueError as error:
        # The text of the error may quote a part of the password.
        reason = error if "@" not in url else "in a password, write %2F for /, %3F for ?, %23 for # and %40 for @"
        raise UnknownScheme(f"cannot read the URL {hide_password(url)!r}: {reason}") from None
    # docket works on bytes: a client that decodes would fail on payloads.
    options.pop("decode_responses", None)
    options.pop("protocol", None)
    options.pop("connection_class", None)
    return options


def _is_tls(scheme: str) -> bool:
    return scheme.startswith(("rediss", "valkeys"))


def _verified(options: dict[str, Any], url: str) -> dict[str, Any]:
    """The options with a check of the certificate: with TLS it must be valid for the name of the
    host, unless the URL says otherwise. redis-py before 6 does not check the name by itself."""
    unverified = str(options.get("ssl_cert_reqs", "required")).lower() in ("none", "cert_none")
    asked = str(options.get("ssl_check_hostname", not unverified)).lower()
    if asked not in _YES + _NO:
        raise UnknownScheme(f"ssl_check_hostname in {hide_password(url)!r} is neither true nor false")
    if unverified and asked in _YES:
        raise UnknownScheme(f"{hide_password(url)!r}: the name of a host cannot be checked with ssl_cert_reqs=none")
    return {**options, "ssl_check_hostname": asked in _YES}


def _parse_sentinel(url: str) -> Address:
    """redis+sentinel://user:password@host:port,host:port/service/database?options"""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    path = [unquote(piece) for piece in parts.path.split("/") if piece]
    if not path or not hosts:
        raise UnknownScheme(
            f"a sentinel URL has the form redis+sentinel://host:port/service/database, not {hide_password(url)!r}"
        )
    options = _options(f"redis://{login + '@' if login else ''}sentinel/0?{parts.query}")
    options = {k: v for k, v in options.items() if k not in ("host", "port", "db")}
    tls = _is_tls(parts.scheme)
    if tls:
        options = _verified(options, url)
    sentinel_options = {
        k.removeprefix("sentinel_"): options.pop(k) for k in ("sentinel_username", "sentinel_password") if k in options
    }
    try:
        sentinels = [
            (h.rpartition(":")[0] or h, int(h.rpartition(":")[2]) if ":" in h else 26379) for h in hosts.split(",")
        ]
        database = int(path[1]) if len(path) > 1 else 0
    except ValueError:
        raise UnknownScheme(f"a port or the database in {hide_password(url)!r} is not a number") from None
    return Address(
        ServerKind.SENTINEL,
        options,
        database,
        sentinels=tuple(sentinels),
        service=path[0],
        sentinel_options=sentinel_options,
        tls=tls,
    )
