"""Translates errors of redis-py: docket repeats a request after a transient error, and reports a
final error to the user."""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Iterator

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    DataError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from docket.errors import DocketError, ServerFull, ServerUnreachable, ServerUnsuitable
from docket.storage.scripts import with_place


class ServerGone(RedisConnectionError, ServerUnreachable):
    """ServerUnreachable, for callers that catch the client library's error as they do around its
    own calls."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ServerSilent(ServerGone):
    """No answer came in time. Another attempt would take as long."""


class ServerUnavailable(ServerGone):
    """The server answers, but cannot serve right now (loading, read-only, failing over)."""


class DamagedData(ServerUnsuitable):
    """A script cannot use the data of the docket: somebody else has
    written to its keys. Callers get the error. A worker at work tries
    again, since whoever repairs the data does not restart it."""


# Texts of server errors after which only a change of settings helps.
_FINAL_TEXTS = (
    "NOPERM",
    "DENIED",
    "WRONGPASS",
    "NOAUTH",
    "unknown command",
    "unknown subcommand",
    "Unknown Redis command",
    "DB index is out of range",
    "invalid DB index",
    "SELECT is not allowed in cluster mode",
    "cluster support disabled",
    "ACL failure in script",
    "can't run this command or subcommand",
    "can't access at least one of the keys",
)

_NOT_COMPILED = "Error compiling script"
# Texts of errors for which the script and the data do not fit: a repeat would fail the same way.
_DATA_TEXTS = ("WRONGTYPE", "user_script:")
_IN_SCRIPT = re.compile(r" script: \w+, on @user_script:\d+\.?\s*$")

_TRANSIENT_PREFIXES = (
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MISCONF",
    "NOREPLICAS",
    "NOGROUP",
    "UNBLOCKED",
    "BUSY",
    "MOVED",
    "ASK",
    "ERR max number of clients",
)
_KILLED = "Script killed by user"

# All errors that redis-py raises about a server. Its cluster exceptions are not RedisErrors.
SERVER_ERRORS = (RedisError, RedisClusterException, OSError, EOFError)


def translate(error: BaseException, where: str) -> DocketError | None:
    """The docket error for a redis-py one, or None if it is not about the server."""
    text = f"{where}: {with_place(error)}"
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)):
        return ServerUnsuitable(text)
    if isinstance(error, OutOfMemoryError) or (isinstance(error, ResponseError) and "OOM" in _server_text(error)[:60]):
        return ServerFull(f"{text} (raise maxmemory or let workers catch up; nothing was stored)")
    if isinstance(
        error,
        (
            BusyLoadingError,
            ReadOnlyError,
            ClusterDownError,
            ClusterError,
            TryAgainError,
            RedisClusterException,
            AskError,
        ),
    ):
        return ServerUnavailable(text)
    if isinstance(error, ResponseError) and _is_transient_text(_server_text(error)):
        return ServerUnavailable(text)
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError, EOFError)):
        is_late = isinstance(error, (RedisTimeoutError, TimeoutError))
        gone = ServerSilent(text) if is_late else ServerGone(text)
        gone.maybe_stored = was_sent(error)
        return gone
    if isinstance(error, DataError) or (isinstance(error, ResponseError) and _is_final_text(str(error))):
        return ServerUnsuitable(text)
    if isinstance(error, ResponseError) and _is_about_data(str(error)):
        return DamagedData(text)
    if isinstance(error, RedisError):
        # An unknown text may come from a proxy, or from a server under maintenance. Whether the
        # request took effect is not known.
        unknown = ServerUnavailable(text)
        unknown.maybe_stored = True
        return unknown
    return None


def mark_sent(error: Exception) -> Exception:
    """Marks the error of a request that was sent: only its answer is missing."""
    vars(error)["was_sent"] = True
    return error


def was_sent(error: BaseException) -> bool:
    return "was_sent" in vars(error)


def is_from_the_wrong_node(error: BaseException) -> bool:
    """Whether another node of the cluster, or another master behind the sentinels, may be the right
    one."""
    return isinstance(
        error,
        (
            RedisConnectionError,
            RedisTimeoutError,
            RedisClusterException,
            ReadOnlyError,
            ClusterError,
            AskError,
            OSError,
            EOFError,
        ),
    )


def is_cut_off(error: BaseException) -> bool:
    """Whether the network is down for this process: it cannot connect at all.

    A server that refuses, or accepts and stays silent, is down for all workers, so no other worker
    can take over the work.
    """
    for seen in _chain(error):
        if isinstance(seen, (TimeoutError, RedisTimeoutError)) and "connecting" in str(seen):
            return True
        if isinstance(seen, OSError) and seen.errno in (
            errno.EHOSTUNREACH,
            errno.ENETUNREACH,
            errno.ENETDOWN,
        ):
            return True
    return False


def is_about_certificates(error: BaseException) -> bool:
    """Whether the server's certificate is not valid. Only a change of the certificate helps."""
    return any(isinstance(seen, ssl.SSLCertVerificationError) for seen in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _server_text(error: ResponseError) -> str:
    """The server's own text. If a command of a script was refused, Redis before 7 puts the script
    and the line before it."""
    text = str(error)
    return text.rpartition(": -")[2] if "user_script" in text[:100] else text


def _is_final_text(text: str) -> bool:
    return _NOT_COMPILED in text[:200] or any(words in text for words in _FINAL_TEXTS)


def _is_about_data(text: str) -> bool:
    text, is_in_script = _IN_SCRIPT.subn("", text)
    if any(words in text[:200] for words in _DATA_TEXTS):
        return True
    # Since Redis 7: the script may not call this command in this way, or with this data.
    return bool(is_in_script) and text.startswith("ERR ")


def _is_transient_text(text: str) -> bool:
    return any(prefix in text[:120] for prefix in _TRANSIENT_PREFIXES) or _KILLED in text
