"""Finds consumers of the streams. It uses plain commands: a script would block the server for
longer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from .faults import SERVER_ERRORS
from .server import Server

PAGE = 500


def consumers_without_lease(
    server: Server, client: Any, streams: Sequence[str], group: str, leases: str
) -> list[bytes]:
    """The consumers of the streams that have no lease. `client` is a client of
    `threaded_client()`."""
    try:
        names: set[bytes] = set()
        for stream in streams:
            # Without the stream or its group there are no consumers.
            with contextlib.suppress(ResponseError):
                # Each row is a list: b"name", the name, and more.
                names.update(row[1] for row in client.execute_command("XINFO", "CONSUMERS", stream, group))
        listed, ends = sorted(names), list[Any]()
        for start in range(0, len(listed), PAGE):
            ends += client.execute_command("ZMSCORE", leases, *listed[start : start + PAGE])
    except SERVER_ERRORS as error:
        raise server.explain(error) from error
    return [name for name, end in zip(listed, ends, strict=True) if end is None]
