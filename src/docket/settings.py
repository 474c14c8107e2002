"""Reads the settings of a docket, and changes them before it is opened."""

from __future__ import annotations

from typing import Any

from docket.docket import Docket
from docket.errors import NotOpen


def settings_of(docket: Docket) -> dict[str, Any]:
    """The arguments that make a docket like this one."""
    return {
        "name": docket.name,
        "url": docket.url,
        "heartbeat_interval": docket.heartbeat_interval,
        "missed_heartbeats": docket.missed_heartbeats,
        "execution_ttl": docket.execution_ttl,
        "result_storage": docket.given_result_storage,
        "enable_internal_instrumentation": docket.enable_internal_instrumentation,
        "credential_provider": docket.server.credential_provider,
        "max_payload": docket.max_payload,
        "add_patience": docket.add_patience,
        "max_losses": docket.max_losses,
        "keep_failures": docket.given_keep_failures,
        "durability": docket.durability,
        "durability_timeout": docket.durability_timeout,
        "pickled_strikes": docket.pickled_strikes,
        "codec": docket.payloads.codec.name,
        "accept": docket.accept,
        "signing": docket.signing,
        "encrypt": docket.payloads.encrypts,
        "exceptions": docket.exceptions,
    }


def change_settings(docket: Docket, **changes: Any) -> None:
    """Changes the settings of a docket that is not open. The object stays the
    same, so code that refers to it sees the change. It keeps its tasks."""
    registry = docket.registry
    Docket.__init__(docket, **{**settings_of(docket), **changes})
    docket.registry = registry


def is_open(docket: Docket) -> bool:
    try:
        docket.ledger  # noqa: B018 - asked for its error
    except NotOpen:
        return False
    return True
