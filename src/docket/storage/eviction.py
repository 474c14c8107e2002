"""Warns of servers that may delete tasks."""

from __future__ import annotations

import logging

from docket.errors import DocketError

from .server import Server

logger: logging.Logger = logging.getLogger("docket.storage")

_VOLATILE_RISK = (
    "the windows of cooldowns, debounces and rate limits (so that tasks run too soon or too often) and the records and "
    "results of finished tasks"
)


async def warn_of_eviction(server: Server, key: bytes) -> None:
    """Warns, once per worker, if the server may evict keys: it could delete tasks."""
    try:
        found = await server.ask(key, "CONFIG", "GET", "maxmemory-policy")
    except DocketError:
        # Managed servers often forbid CONFIG, so the policy is unknown.
        return
    policy = found[1].decode() if len(found) > 1 else ""
    if policy and policy != "noeviction":
        # The volatile policies delete only keys that expire.
        risk = _VOLATILE_RISK if policy.startswith("volatile") else "tasks that wait"
        logger.warning(
            "%s has maxmemory-policy %s: when memory runs short it will delete %s. Set maxmemory-policy to noeviction",
            server.shown_url, policy, risk,
        )  # fmt: skip
