"""docket's subclasses of redis-py's connections. This module has all private names of redis-py that
docket overrides or reads; `make test-redis-py` tests them with the oldest and the newest release.

Host names are resolved in a thread of docket's own, and their addresses are tried in order. TLS
verifies the name, not the address. Connections for threads have one deadline for everything they
do.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from redis import connection as blocking
from redis.asyncio import connection as aio
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoScriptError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from docket.storage.repairs import careful_form, is_damage, unwrap
from docket.storage.scripts import Script, mark_script

from .credentials import BoundedCredentials, TimedCredentials
from .faults import mark_sent
from .hosts import addresses, addresses_within
from .urls import Address

# The least time for a step of a connection: a time-out of zero would make the socket non-blocking.
_LEAST_SECONDS = 0.001


class AsyncConnection(aio.Connection):
    """TCP for the event loop."""

    _address: str | None = None

    async def _connect(self) -> None:
        trouble: OSError | None = None
        for address in await addresses(self.host, self.port):
            self._address = address
            try:
                await super()._connect()
            except OSError as error:
                trouble = error
            else:
                return
        raise trouble or OSError(f"{self.host} has no address")

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments: Mapping[str, Any] = cast(Any, super())._connection_arguments()
        return {**arguments, "host": self._address or self.host}


class AsyncTLSConnection(AsyncConnection, aio.SSLConnection):
    """TLS for the event loop."""

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "server_hostname": self.host}


def take_transport(connection: Any) -> tuple[asyncio.StreamWriter, ParseError, bool]:
    """Takes the transport out of an open connection of redis-py, which must then neither use nor
    close it, and the parser of the connection's error texts. The last value says whether the server
    has closed the connection: a transport tells that only once, and redis-py was told.

    The caller keeps the writer, because it closes its transport when it is garbage-collected.
    """
    writer: asyncio.StreamWriter = connection._writer
    reader: asyncio.StreamReader = connection._reader
    parse = error_parser(connection._parser)
    connection._reader = connection._writer = None
    return writer, parse, reader.at_eof()


class _Timed(blocking.AbstractConnection):
    """Every operation ends at the deadline, on the monotonic clock."""

    deadline = 0.0

    @property
    def left(self) -> float:
        return max(self.deadline - time.monotonic(), _LEAST_SECONDS)

    def connect(self) -> None:
        """Does nothing if there is a connection."""
        if self._sock is None:
            self.socket_timeout = self.socket_connect_timeout = self.left
            if isinstance(self.credential_provider, BoundedCredentials):
                # The other half is for the server.
                self.credential_provider = TimedCredentials(self.credential_provider, self.left / 2)
            super().connect()

    def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        self._limit()
        return cast(Any, super()).send_packed_command(*args, **kwargs)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        self._limit()
        return cast(Any, super()).read_response(*args, **kwargs)

    def _limit(self) -> None:
        if self.deadline - time.monotonic() <= 0:
            raise RedisTimeoutError("no answer in time")
        if self._sock is not None:
            self._sock.settimeout(self.left)


class _TimedTCP(_Timed, blocking.Connection):
    def _connect(self) -> Any:
        name, trouble = self.host, None
        # Most of the time is for the connection: a silent resolver must not use it up.
        for address in addresses_within(name, self.port, self.left / 3):
            # The name is restored before TLS verifies it, which happens in the caller.
            self.host, self.socket_timeout, self.socket_connect_timeout = address, self.left, self.left
            try:
                return super()._connect()
            except OSError as error:
                trouble = error
            finally:
                self.host = name
        raise trouble or OSError(f"{name} has no address")


class _TimedTLS(blocking.SSLConnection, _TimedTCP): ...


class _TimedUnix(_Timed, blocking.UnixDomainSocketConnection): ...


class ThreadedClient:
    """Sends commands from a thread, one at a time. Each command, with everything that connecting
    takes, ends within its patience."""

    def __init__(
        self,
        address: Address,
        options: Callable[[float], dict[str, Any]],
        patience: Callable[[], float],
        outages: Callable[[], int],
    ) -> None:
        self._class = _threaded_class(address)
        self._options = options
        self._patience = patience
        self._outages = outages
        self._connection: Any = None
        # The number of outages when the connection was opened.
        self._opened_after = 0

    def execute_command(self, *words: Any) -> Any:
        """Sends a command and returns its answer. Raises the errors of redis-py. After an error of
        the connection the next command opens a new one."""
        deadline = time.monotonic() + self._patience()
        if self._connection is not None and self._opened_after != self._outages():
            # The connection may be as dead as the one that failed, which would look like another
            # outage.
            self.close()
        connection: Any = self._connection
        is_sent = False
        try:
            if connection is None:
                self._opened_after = self._outages()
                connection = self._connection = cast(Any, self._class)(**self._options(deadline - time.monotonic()))
            connection.deadline = deadline
            connection.connect()
            is_sent = True
            connection.send_command(*words)
            return connection.read_response()
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            self.close()
            if is_sent:
                mark_sent(error)
            raise

    @property
    def open_socket(self) -> socket.socket | None:
        """The socket of the open connection, or None."""
        return self._connection._sock if self._connection is not None else None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


def run_script(client: Any, script: Script, keys: Sequence[bytes], args: Sequence[bytes | str]) -> Any:
    """Runs a script on a blocking client, by its digest; loads it first if the server does not know
    it."""
    try:
        try:
            return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.execute_command("EVAL", script.source, len(keys), *keys, *args)
    except ResponseError as error:
        mark_script(error, script)
        if not is_damage(error):
            raise
        try:
            reply = client.execute_command("EVAL", careful_form(script).source, len(keys), *keys, *args)
        except ResponseError:
            # This user may not repair anything, or the damage is of another kind.
            raise error from None
        return unwrap(reply, keys[0])


def async_class(address: Address) -> type[aio.AbstractConnection]:
    if "path" in address.options:
        return aio.UnixDomainSocketConnection
    return AsyncTLSConnection if address.tls else AsyncConnection


def _threaded_class(address: Address) -> type[_Timed]:
    if "path" in address.options:
        return _TimedUnix
    return _TimedTLS if address.tls else _TimedTCP


ParseError = Callable[[str], Exception]

# redis-py before 6 knows these only on the connections of its own cluster client.
_OF_CLUSTERS: dict[str, Callable[[str], Exception]] = {
    "ASK": AskError,
    "TRYAGAIN": TryAgainError,
    "MOVED": MovedError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "MASTERDOWN": MasterDownError,
}


def error_parser(parser: Any) -> ParseError:
    """A parser that turns the text of an error into an exception, the same for every release of
    redis-py."""
    parse: ParseError = parser.parse_error
    return parse if "MOVED" in parser.EXCEPTION_CLASSES else _with_clusters(parse)


def _with_clusters(parse: ParseError) -> ParseError:
    def parse_error(text: str) -> Exception:
        code, _, rest = text.partition(" ")
        known = _OF_CLUSTERS.get(code)
        return parse(text) if known is None else known(rest)

    return parse_error
