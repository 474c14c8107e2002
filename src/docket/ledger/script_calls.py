"""Runs the scripts of one docket."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from docket.codec.packing import pack_for_script, script_packer
from docket.codec.proofs import new_secret
from docket.model.keeping import Keep
from docket.storage.keys import Keys, text_bytes
from docket.storage.server import Server

from .values import OFFER_MS


class ScriptCalls:
    """The base of the ledger: the keys of one docket, and its scripts by name."""

    offer_ms: int = OFFER_MS

    def __init__(self, server: Server, keys: Keys, ttl_ms: int, keep: Keep | None = None) -> None:
        self.server = server
        self.keys = keys
        self.ttl_ms = ttl_ms
        # How tasks that failed for good are kept.
        self.keep: Keep = keep or Keep()
        self.keep_ms: int = self.keep.age_ms
        self._channels = text_bytes(keys.channels)
        self._root = [keys.root]
        # The secret of the docket from now on, if the docket has none (docs/design/proofs.md).
        self._fresh_secret = new_secret()
        # For the event loop only. Threads that renew leases pack with their own buffer.
        self._pack = script_packer()
        # They hear which pauses that compare arguments are in force when a claim is made.
        self.pause_listeners: set[Callable[[bytes], None]] = set()

    def ask(self, script: str, arguments: Any, patience: float | None = None) -> Coroutine[Any, Any, Any]:
        """Runs a script. Only modules of docket.ledger call
        this; other modules call the methods of the ledger."""
        return self.server.run(script, self._root, self._channels, self._pack(arguments), patience=patience)

    def ask_and_wait(
        self, script: str, arguments: Any, wait_ms: int
    ) -> Coroutine[Any, Any, tuple[Any, int | BaseException]]:
        """Runs a script and waits for a replica: the script's answer, and how many replicas have
        what it wrote, or the error instead."""
        return self.server.run_and_wait(script, self._root, self._channels, self._pack(arguments), wait_ms=wait_ms)

    def ask_blocking(self, client: Any, script: str, arguments: Any) -> Any:
        """Runs a script from a thread, on the thread's own blocking client."""
        return self.server.run_blocking(client, script, self._root, self._channels, pack_for_script(arguments))

    async def ping(self) -> None:
        """Sends a command that does nothing, to measure the round trip to the server."""
        await self.server.client.execute_command("PING")

    async def server_ms(self) -> float:
        """The server's time in milliseconds."""
        seconds, microseconds = await self.server.ask(text_bytes(self.keys.stream), "TIME")
        return int(seconds) * 1000 + int(microseconds) / 1000
