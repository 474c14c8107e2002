"""The dashboard of the demo."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from docket.cli.web import LOCAL_NAMES, LOOPBACK, PORT, web_url
from docket.docket import Docket
from docket.web import app
from docket.web.http_server import listen, serving


@asynccontextmanager
async def dashboard(docket: Docket) -> AsyncGenerator[str]:
    """Serves the dashboard for this machine, and yields its address."""
    with _listen() as listening:
        async with serving(app(docket, guard=None, hosts=LOCAL_NAMES), listening):
            yield web_url(LOOPBACK, listening.getsockname()[1])


def _listen() -> socket.socket:
    """The usual port, or any other if that is taken."""
    try:
        return listen(LOOPBACK, PORT)
    except OSError:
        return listen(LOOPBACK, 0)
