"""Runs the scripts of one docket, for the areas of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from docket.codec.packing import pack_for_script, script_packer
from docket.codec.proofs import new_secret
from docket.model.bounds import MAX_LOSSES
from docket.model.retention import Keep
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

from .values import OFFER_MS


class ScriptCalls:
    """The keys of one docket, the settings that scripts receive, and its scripts by name."""

    offer_ms: int = OFFER_MS

    def __init__(
        self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES, keep: Keep | None = None
    ) -> None:
        self.server = server
        self.keys = keys
        self.ttl_ms = ttl_ms
        self.max_losses = max_losses
        # How tasks that failed for good are kept.
        self.keep: Keep = keep or Keep()
        self.keep_ms: int = self.keep.age_ms
        # The secret of the docket from now on, if the docket has none (docs/design/proofs.md).
        self.fresh_secret: bytes = new_secret()
        # They hear which pauses that compare arguments are in force when a claim is made.
        self.pause_listeners: set[Callable[[bytes], None]] = set()
        self._channels = text_bytes(keys.channels)
        self._root = [keys.root]
        # For the event loop only. Threads that renew leases pack with their own buffer.
        self._pack = script_packer()

    def run_script(self, script: str, arguments: Any, patience: float | None = None) -> Coroutine[Any, Any, Any]:
        """Runs a script. Only the areas call this; other modules call the methods of the areas."""
        return self.server.run(script, self._root, self._channels, self._pack(arguments), patience=patience)

    def run_script_and_wait(
        self, script: str, arguments: Any, wait_ms: int
    ) -> Coroutine[Any, Any, tuple[Any, int | BaseException]]:
        """Runs a script and waits for a replica: the script's answer, and how many replicas have
        what it wrote, or the error instead."""
        return self.server.run_and_wait(script, self._root, self._channels, self._pack(arguments), wait_ms=wait_ms)

    def run_script_blocking(self, client: Any, script: str, arguments: Any) -> Any:
        """Runs a script from a thread, on the thread's own blocking client."""
        return self.server.run_blocking(client, script, self._root, self._channels, pack_for_script(arguments))


class Area:
    """The scripts about one subject, one method each."""

    def __init__(self, calls: ScriptCalls) -> None:
        self._calls = calls
