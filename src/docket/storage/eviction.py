"""The warning about servers that may delete work."""

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
    """A server that may evict keys may delete work: said loudly, once per worker."""
    try:
        found = await server.ask(key, "CONFIG", "GET", "maxmemory-policy")
    except DocketError:
        # Managed servers often forbid CONFIG; then there is nothing to say.
        return
    policy = found[1].decode() if len(found) > 1 else ""
    if policy and policy != "noeviction":
        # The others delete only keys that expire.
        risk = _VOLATILE_RISK if policy.startswith("volatile") else "tasks that wait"
        logger.warning(
            "%s has maxmemory-policy %s: when memory runs short it will delete %s. Set maxmemory-policy to noeviction",
            server.shown_url, policy, risk,
        )  # fmt: skip
