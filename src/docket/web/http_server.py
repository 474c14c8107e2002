"""Serves the dashboard over HTTP, for `docket web` and the demo. Applications bring their own
server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Generator
from typing import Any

from starlette.applications import Starlette

from docket.errors import MissingPackage

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as _error:
    raise MissingPackage(f"this command needs the package {_error.name}: pip install 'docket[web]'") from _error

# A request, with its body, has to arrive within this time.
REQUEST_SECONDS = 15.0
# A further connection takes the place of one that does nothing, or of the oldest one.
MOST_CONNECTIONS = 500
# How long a connection counts as new.
NEW_SECONDS = 1.0
# How long requests may take after the server was asked to stop.
GRACE_SECONDS = 3


class _Connection(H11Protocol):
    """A connection whose client cannot keep others out: by being slow, or by being many."""

    _deadline: asyncio.TimerHandle | None = None
    _began = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()
        self._began = self.loop.time()
        everyone = _connections(self)
        if len(everyone) >= MOST_CONNECTIONS:
            # A client that has just come is not idle: its request is on its way.
            idle = (one for one in everyone if one.is_waiting and self._began - one._began > NEW_SECONDS)
            oldest = next(idle, None) or next(iter(everyone))
            everyone.pop(oldest)
            oldest.transport.abort()
        everyone[self] = None

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to send something before there is an answer."""
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_waiting:
            self._expect_request()
        else:
            self._end_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        _connections(self).pop(self, None)
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.is_waiting:
            self.transport.abort()


def _connections(connection: _Connection) -> dict[_Connection, None]:
    """The connections of one server, the oldest first."""
    return connection.server_state.__dict__.setdefault("docket_connections", {})


class _CommandServer(uvicorn.Server):
    """A server that leaves signals to its command."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 chooses a free port. Raises OSError that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=128)
        # The connections inherit it. Head and body of an answer are two packets, and without it the
        # second one waits for the client to acknowledge the first: 40 ms. asyncio does not set it
        # for a socket that was made here.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        # The text of the error repeats the address. Numbers below 0 are those of the resolver.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise OSError(f"cannot listen on {host} port {port}: {reason}") from None


@contextlib.asynccontextmanager
async def serving(application: Starlette, listening: socket.socket, root_path: str = "") -> AsyncGenerator[None]:
    """Serves the application within the context. Its dockets are open already."""
    config = uvicorn.Config(
        application,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        root_path=root_path,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _CommandServer(config)
    task = asyncio.create_task(server.serve([listening]), name="docket web")
    try:
        up = asyncio.create_task(server.is_up.wait())
        await asyncio.wait((task, up), return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        yield
    finally:
        application.state.dashboard.stop_streams()
        server.should_exit = True
        await task
