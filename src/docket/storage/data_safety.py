"""Warns of servers that may lose tasks because of their settings."""

from __future__ import annotations

import logging

from docket.errors import DocketError

from .server import Server
from .urls import ServerKind

logger: logging.Logger = logging.getLogger("docket.storage")

_VOLATILE_RISK = (
    "the windows of cooldowns, debounces and rate limits (so that tasks run too soon or too often) and the records and "
    "results of finished tasks"
)


async def warn_of_data_loss(server: Server, key: bytes) -> None:
    """Warns, once per worker, if the server may delete tasks or does not keep them."""
    try:
        await _warn_of_eviction(server, key)
        if server.address.kind is not ServerKind.MEMORY:
            await _warn_of_restarts(server, key)
    except DocketError:
        # Managed servers often forbid CONFIG, so the settings are unknown.
        return


async def warn_of_missing_replica(server: Server, key: bytes) -> None:
    """Warns, once per docket, if every `add` will
    have to wait for a replica that does not exist."""
    if not server.is_reached or server.address.kind is ServerKind.MEMORY:
        return
    try:
        info = await server.ask(key, "INFO", "replication")
    except DocketError:
        return
    if b"connected_slaves:0" in info:
        logger.warning(
            '%s has no replica: with durability="replica" every add raises NotDurable until a replica is connected',
            server.shown_url,
        )


async def _warn_of_eviction(server: Server, key: bytes) -> None:
    policy = await _setting(server, key, "maxmemory-policy")
    if policy and policy != "noeviction":
        # The volatile policies delete only keys that expire.
        risk = _VOLATILE_RISK if policy.startswith("volatile") else "tasks that wait"
        logger.warning(
            "%s has maxmemory-policy %s: when memory runs short it will delete %s. Set maxmemory-policy to noeviction",
            server.shown_url, policy, risk,
        )  # fmt: skip


async def _warn_of_restarts(server: Server, key: bytes) -> None:
    if await _setting(server, key, "appendonly") == "no" and await _setting(server, key, "save") == "":
        logger.warning(
            '%s has appendonly no and save "": it keeps nothing on disk, so a restart loses all tasks. '
            "Set appendonly to yes",
            server.shown_url,
        )


async def _setting(server: Server, key: bytes, name: str) -> str | None:
    """The value of a setting of the server; None if the server does not have it."""
    found = await server.ask(key, "CONFIG", "GET", name)
    return found[1].decode() if len(found) > 1 else None
