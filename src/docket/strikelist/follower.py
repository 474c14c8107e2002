"""Keeps the strikes of this process the same as those on the server."""

from __future__ import annotations

import asyncio
import contextlib

from docket._aio import Backoff, cancel_and_wait
from docket.errors import TRANSIENT
from docket.ledger.rules import StrikeStore
from docket.storage.client.outages import Outages
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Inquiry, Subscriptions

from .in_force import StrikesInForce

_LONGEST_PAUSE = 1.0


class StrikeFollower:
    """Loads the strikes, and applies the changes of other processes."""

    def __init__(
        self, name: str, in_force: StrikesInForce, server: Server, subscriptions: Subscriptions, keys: Keys
    ) -> None:
        self._name = name
        self._in_force = in_force
        self._subscriptions = subscriptions
        self.store: StrikeStore = StrikeStore(server, keys)
        self._is_listening = False
        self._loading = asyncio.Lock()
        self._stale, self._loaded, self._tried = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stale.set()
        self._reload = Inquiry(self._stale.set)
        subscriptions.on_gap(self, self._stale.set)
        self._task = asyncio.create_task(self._keep_loaded(server.outages), name=f"{name} - strikes")
        self._task.add_done_callback(_retrieve_exception)

    async def wait_tried(self) -> None:
        """Returns after the first attempt to load the strikes."""
        await self._wait_for(self._tried)

    async def wait_loaded(self) -> None:
        await self._wait_for(self._loaded)

    async def stop(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await cancel_and_wait([self._task], "docket: the strike list closes")
        self._reload.close()
        self._subscriptions.forget_gap(self)
        self._subscriptions.unlisten(self.store.channel, self._on_message)

    async def load(self) -> None:
        """Subscribes first and then reads, so that no change is missed in between."""
        async with self._loading:
            if not self._is_listening:
                await self._subscriptions.listen(self.store.channel, self._on_message)
                self._is_listening = True
            with self._in_force.loading() as changed_ids:
                version, stored = await self.store.read()
            self._in_force.replace_all(version, stored, keep=changed_ids)

    async def discard(self, id: str) -> bool:
        """Removes a rule by its id, whatever it holds. Returns whether there was one."""
        version, changed = await self.store.write([(id, None)])
        if changed:
            self._in_force.receive(version, [(id, None)])
        else:
            await self.load()
        return bool(changed)

    async def _keep_loaded(self, outages: Outages) -> None:
        """Loads the strikes at the start, and again whenever messages may be missing."""
        backoff = Backoff(most=_LONGEST_PAUSE)
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self.load()
            except TRANSIENT as error:
                outages.failed(self, f"strikes of {self._name} cannot be loaded", error)
                self._stale.set()
                self._tried.set()
                await outages.pause(backoff.next_pause())
            else:
                backoff.reset()
                outages.passed(self)
                self._loaded.set()
                self._tried.set()

    def _on_message(self, message: bytes) -> None:
        """Applies the change of another process. After a message that does not prove where it comes
        from, the rules are read from the server."""
        read = self.store.read_message(message)
        if read is None:
            self._subscriptions.ignored.note("strikes")
            self._reload.request()
        else:
            self._in_force.receive(*read)

    async def _wait_for(self, event: asyncio.Event) -> None:
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done() and not event.is_set():
            # The task ends only with a permanent error. Raise that error.
            self._task.result()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Marks the exception of the task as retrieved. Callers that wait for strikes raise it; without
    such a caller, asyncio must not log it."""
    if not task.cancelled():
        task.exception()
