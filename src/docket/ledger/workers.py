"""The fleet: workers register, renew their leases, reclaim the work of dead workers, and lead."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from docket.model.losses import MAX_LOSSES
from docket.storage.consumers import consumers_without_lease
from docket.storage.keys import GROUP, Keys, bytes_text, segment, text_bytes
from docket.storage.server import Server

from .endings import lost_endings
from .rows import WorkerRow
from .script_calls import ScriptCalls
from .values import Delivery, Duty, Reclaimed, RegistrationReply, Renewal

_INSPECTED = 100
# Deliveries beside its runs that a worker may have in its socket.
_UNREAD = 100


class WorkerVerbs(ScriptCalls):
    """The verbs about workers."""

    def __init__(self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES) -> None:
        super().__init__(server, keys, ttl_ms)
        self._max_losses = max_losses
        self._lost_endings = lost_endings()

    async def register(
        self, worker: str, lease_ms: int, tasks: Sequence[str], max_losses: Mapping[str, int] | None = None
    ) -> RegistrationReply:
        """Puts a worker on the roster; `max_losses` has the
        tasks that declare how many losses bury them."""
        declared = [(text_bytes(name), most) for name, most in (max_losses or {}).items()]
        names = [text_bytes(name) for name in tasks]
        now, duty, *waiting = await self.ask("register", (worker.encode(), lease_ms, names, declared))
        return RegistrationReply(now, Duty(duty), [bytes_text(name) for name in waiting])

    async def resign(self, worker: str) -> None:
        """Gives up the worker's duty, if it has one."""
        await self.ask("resign", (worker.encode(),))

    async def leave(self, worker: str) -> bool:
        return bool(await self.ask("leave", (worker.encode(),)))

    async def list_workers(self, task: str | None = None) -> list[WorkerRow]:
        reply = await self.ask("list_workers", (text_bytes(task) if task is not None else False,))
        return [WorkerRow(id.decode(), float(seen), {bytes_text(name) for name in names}) for id, seen, names in reply]

    async def lead(self, duty: str, worker: str, hold_ms: int) -> bool:
        """Elects one worker for a duty that only some workers of
        the fleet can do, such as gauges where somebody listens.

        Whether this worker leads; it does until it has not asked
        for `hold_ms`. All others ask with one plain command.
        """
        key, name = text_bytes(self.keys.named("leads", duty)), worker.encode()
        leader = await self.server.ask(key, "GET", key)
        if leader is None:
            return bool(await self.server.ask(key, "SET", key, name, "NX", "PX", hold_ms))
        if leader == name:
            # Where the time ran out just now, another may have taken over: then this does nothing,
            # and the next GET tells.
            await self.server.ask(key, "PEXPIRE", key, hold_ms)
        return leader == name

    async def isolate(self, worker: str, delivery: Delivery, *, alone: bool) -> bool:
        """Marks the run as the only body of its process, or
        removes the mark. False if the run no longer counts.

        See docs/design/lease-protocol.md, Suspects.
        """
        terms = (worker.encode(), text_bytes(delivery.key), delivery.epoch, int(alone))
        return bool(await self.ask("isolate", terms))

    # For the thread that keeps the lease; `client` is a blocking one of its own.

    def leave_blocking(self, client: Any, worker: str) -> None:
        self.ask_blocking(client, "leave", (worker.encode(),))

    def renew(
        self,
        client: Any,
        worker: str,
        lease_ms: int,
        late_ms: int,
        *,
        busy: bool,
        has_offer: bool = False,
        stopping: bool = False,
    ) -> Renewal:
        """Extends the lease, and the offer of a slot if there is one; an order
        is shown to a busy worker at every renewal until its run is over. If
        nobody has renewed for `late_ms`, nobody is declared dead for a while.
        If a worker dies that is stopping, its runs do not count as lost."""
        offer_ms = self.offer_ms if has_offer else 0
        terms = (worker.encode(), lease_ms, int(busy), offer_ms, late_ms, int(stopping))
        reply = self.ask_blocking(client, "renew", terms)
        orders = [(int(epoch), bytes_text(key)) for epoch, _, key in (order.partition(b" ") for order in reply[4:])]
        return Renewal(reply[0] == 0, float(reply[1]), reply[0] == 1, bool(reply[2]), bool(reply[3]), orders)

    def reclaim(
        self,
        client: Any,
        worker: str,
        lease_ms: int,
        late_ms: int,
        *,
        willing: bool = True,
        consumers: Sequence[bytes] = (),
    ) -> Reclaimed:
        """One step for the fleet. A worker that is willing gets a duty that is vacant."""
        endings = (self._max_losses, self._lost_endings)
        terms = (worker.encode(), lease_ms, late_ms, int(willing), list(consumers))
        reply: list[int] = self.ask_blocking(client, "reclaim", (*terms, self.ttl_ms, *endings))
        declared, put_back, buried, cancelled, left, look, duty = reply
        return Reclaimed(declared, put_back, buried, cancelled, left, bool(look), Duty(duty))

    def release_unread(self, client: Any, worker: str, runs: int, reading: int | None) -> int:
        """Ends the worker's blocked read and puts back what
        it was sent and has not claimed; returns how much."""
        if reading is not None:
            self.server.unblock(client, reading)
        return self.ask_blocking(client, "release", (worker.encode(), runs + _UNREAD))

    def consumers_without_lease(self, client: Any) -> list[bytes]:
        """Consumers of workers that are gone: a blocking read of theirs was answered afterwards."""
        streams = (self.keys.stream, self.keys.front)
        return consumers_without_lease(self.server, client, streams, GROUP, self.keys.leases)

    def inspect(self, client: Any) -> None:
        """Corrects leases that a clock that was set back has left too far ahead, page by page."""
        cursor = b"0"
        while True:
            cursor = self.ask_blocking(client, "inspect", (cursor, _INSPECTED))
            if cursor == b"0":
                return

    def sweep(self, client: Any, size: int, least_ms: int) -> list[int]:
        return self.ask_blocking(client, "sweep", (size, least_ms, self.ttl_ms))


def worker_id(name: str, suffix: str) -> str:
    """A worker's id is part of key names, so it is a segment; the name stays readable."""
    return f"{segment(name)}~{suffix}"


def manual_run_id(name: str) -> str:
    """The id of a lease for one run by hand, as the scripts know it."""
    return worker_id(name, f"hand-{secrets.token_hex(6)}")


def worker_name(id: str) -> str:
    return id.rpartition("~")[0].replace("%3A", ":").replace("%25", "%")


def as_json(text: str) -> str:
    return json.dumps(text)
