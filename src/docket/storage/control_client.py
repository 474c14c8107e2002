"""A blocking client that controls a server: for test servers, which no docket has opened."""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def control_client(socket_path: str, *, user: str | None = None, password: str | None = None, **options: Any) -> Any:
    """A client that reports the first error instead of trying again. The caller closes it."""
    return redis.Redis(
        unix_socket_path=socket_path,
        username=user,
        password=password,
        retry=Retry(NoBackoff(), 0),
        **options,
    )
