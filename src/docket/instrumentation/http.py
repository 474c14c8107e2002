"""Health and metrics over HTTP. The server has its own
thread, so it answers even if the event loop is blocked."""

from __future__ import annotations

import contextlib
import functools
import importlib
import socket
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from docket.errors import MissingPackage

# Returns the status and the body of an answer.
Page = Callable[[], tuple[int, bytes]]


# A client that sends nothing for this long is disconnected, which frees its thread.
IDLE_SECONDS = 5.0
# A further connection takes the place of the oldest one, so nobody can keep probes out.
MOST_CONNECTIONS = 32

ALL_INTERFACES = "0.0.0.0"

# The page for all paths without a page of their own.
ELSEWHERE = "*"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD. It does not reveal versions, and it logs nothing."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server_version = "docket"
    sys_version = ""

    def __init__(self, pages: dict[str, Page], content_type: str, *args: Any) -> None:
        self._pages = pages
        self._content_type = content_type
        super().__init__(*args)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        page = self._pages.get(self.path.partition("?")[0]) or self._pages.get(ELSEWHERE)
        status, body = page() if page is not None else (404, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", self._content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


class _BoundedServer(ThreadingHTTPServer):
    """A server with a bounded number of connections. It ignores clients that disconnect before they
    get an answer."""

    daemon_threads = True
    # If more clients connect at once than fit into the queue, the kernel drops some, and their next
    # attempt is a second later: longer than a probe may wait.
    request_queue_size = 1024

    def __init__(self, *args: Any) -> None:
        self._open: dict[Any, None] = {}
        self._changing = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            oldest = next(iter(self._open)) if len(self._open) >= MOST_CONNECTIONS else None
            self._open.pop(oldest, None)
            self._open[request] = None
        if oldest is not None:
            with contextlib.suppress(OSError):
                # Its thread sees the end of the connection, and closes it.
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _SharedServer(_BoundedServer):
    """A server whose port another process of the same user may also serve."""

    allow_reuse_port = True


@contextlib.contextmanager
def _serving(
    host: str, port: int, pages: dict[str, Page], content_type: str, what: str, *, is_shared: bool = False
) -> Generator[int]:
    try:
        server = (_SharedServer if is_shared else _BoundedServer)(
            (host, port), functools.partial(_Handler, pages, content_type)
        )
    except OSError as error:
        raise OSError(error.errno, f"cannot serve {what} on {host}:{port}: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, name=f"docket - {what}", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Returns the problem, or None if all is well.
Verdict = Callable[[], str | None]


def _verdict_page(verdict: Verdict | None) -> Page:
    def page() -> tuple[int, bytes]:
        problem = verdict() if verdict is not None else None
        return (200, b"OK") if problem is None else (503, f"{problem}\n".encode())

    return page


@contextlib.contextmanager
def healthcheck_server(
    host: str = ALL_INTERFACES,
    port: int | None = None,
    *,
    health: Verdict | None = None,
    ready: Verdict | None = None,
) -> Generator[int | None]:
    """Serves the readiness on `/ready` and the health on every other path: 200 while all is well,
    otherwise 503 with the reason. Does nothing without a port.

    The context yields the port; port 0 selects a free port. Raises OSError if the port is taken.
    """
    if port is None:
        yield None
        return
    well = _verdict_page(health)
    # Probes of different platforms use different paths.
    pages = {ELSEWHERE: well, "/ready": _verdict_page(ready or health)}
    with _serving(host, port, pages, "text/plain; charset=utf-8", "health") as bound:
        yield bound


def _prometheus_mirror() -> Any:
    """Imports prometheus-client only here, because only processes that serve metrics need it."""
    try:
        return importlib.import_module("docket.instrumentation.prometheus").PrometheusMirror()
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "the metrics port needs the package prometheus-client: pip install prometheus-client"
        ) from error


@contextlib.contextmanager
def metrics_server(
    host: str = ALL_INTERFACES, port: int | None = None, *, is_shared: bool = False
) -> Generator[int | None]:
    """Serves `/metrics` (and `/`) for Prometheus. Does nothing without a port. Raises the same
    errors as healthcheck_server, and MissingPackage without prometheus-client.

    A port that `is_shared` may also be served by the process that replaces this one."""
    if port is None:
        yield None
        return
    mirror = _prometheus_mirror()

    def page() -> tuple[int, bytes]:
        return 200, mirror.render()

    content_type = "text/plain; version=0.0.4; charset=utf-8"
    try:
        with _serving(host, port, {"/metrics": page, "/": page}, content_type, "metrics", is_shared=is_shared) as bound:
            yield bound
    finally:
        mirror.detach()
