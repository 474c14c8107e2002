"""Health and metrics over HTTP, from a thread: they answer also while the event loop is blocked."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from docket.errors import MissingPackage

# A path's answer: status and text.
Page = Callable[[], tuple[int, bytes]]


# A client that sends nothing for this long loses its
# connection, and with it the thread that serves it.
IDLE_SECONDS = 5.0

# The page of every path that has none of its own.
ELSEWHERE = "*"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET; tells nothing else, and logs nothing."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server_version = "docket"
    sys_version = ""

    def __init__(self, pages: dict[str, Page], content_type: str, *args: Any) -> None:
        self._pages = pages
        self._content_type = content_type
        super().__init__(*args)

    def do_GET(self) -> None:
        page = self._pages.get(self.path.partition("?")[0]) or self._pages.get(ELSEWHERE)
        status, body = page() if page is not None else (404, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", self._content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        return


class _Server(ThreadingHTTPServer):
    """Clients come and go: one that leaves before its answer is nobody's error."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def _serving(host: str, port: int, pages: dict[str, Page], content_type: str, what: str) -> Generator[int]:
    try:
        server = _Server((host, port), functools.partial(_Handler, pages, content_type))
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


# Why something is not well, or None if it is.
Verdict = Callable[[], str | None]


def _verdict_page(verdict: Verdict | None) -> Page:
    def page() -> tuple[int, bytes]:
        problem = verdict() if verdict is not None else None
        return (200, b"OK") if problem is None else (503, f"{problem}\n".encode())

    return page


@contextlib.contextmanager
def healthcheck_server(
    host: str = "0.0.0.0",
    port: int | None = None,
    *,
    health: Verdict | None = None,
    ready: Verdict | None = None,
) -> Generator[int | None]:
    """Serves `/ready`, and on any other path the health: 200 while all is well, else 503 with the
    reason. Without a port, nothing.

    Raises OSError if the port is taken. Port 0 picks
    a free one; the port is the value of the context.
    """
    if port is None:
        yield None
        return
    well = _verdict_page(health)
    # Probes ask for whatever path their owners are used to.
    pages = {ELSEWHERE: well, "/ready": _verdict_page(ready or health)}
    with _serving(host, port, pages, "text/plain; charset=utf-8", "health") as bound:
        yield bound


def _prometheus_mirror() -> Any:
    """Loaded by name: only those who serve metrics need the library, and pay for it."""
    try:
        return importlib.import_module("docket.instrumentation.prometheus").PrometheusMirror()
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "the metrics port needs the package prometheus-client: pip install prometheus-client"
        ) from error


@contextlib.contextmanager
def metrics_server(host: str = "0.0.0.0", port: int | None = None) -> Generator[int | None]:
    """Serves `/metrics` (and `/`) for Prometheus. Without a port, nothing. Raises as
    healthcheck_server, and MissingPackage without prometheus-client."""
    if port is None:
        yield None
        return
    mirror = _prometheus_mirror()

    def page() -> tuple[int, bytes]:
        return 200, mirror.render()

    content_type = "text/plain; version=0.0.4; charset=utf-8"
    try:
        with _serving(host, port, {"/metrics": page, "/": page}, content_type, "metrics") as bound:
            yield bound
    finally:
        mirror.detach()
