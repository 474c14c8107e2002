"""The fleet: workers register, renew their leases, reclaim the work of dead workers, and lead."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from docket.errors import WorkerLost
from docket.model.keeping import Keep
from docket.model.losses import MAX_LOSSES
from docket.storage.consumers import consumers_without_lease
from docket.storage.faults import DamagedData
from docket.storage.keys import GROUP, Keys, bytes_text, segment, text_bytes
from docket.storage.server import Server

from .endings import LOST_TEXT, lost_endings, own_ending
from .letter_notes import WORKER_LOST, DeathCause, script_note
from .script_calls import ScriptCalls
from .values import Delivery, Duty, Reclaimed, RegistrationReply, Renewal

_LEASES_AT_ONCE = 100
# The most deliveries, in addition to its runs, that may be in a worker's socket.
_UNREAD = 100


class WorkerVerbs(ScriptCalls):
    """The part of the ledger that deals with workers."""

    def __init__(
        self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES, keep: Keep | None = None
    ) -> None:
        super().__init__(server, keys, ttl_ms, keep)
        self._max_losses = max_losses
        self._lost_endings = lost_endings()
        text = own_ending(WorkerLost(LOST_TEXT.format("#"))).error or ""
        self._lost_note = script_note(self.keep, DeathCause.BURIED, WORKER_LOST, text)

    async def register(
        self,
        worker: str,
        lease_ms: int,
        tasks: Sequence[str],
        max_losses: Mapping[str, int] | None = None,
        kept_ages: Mapping[str, int] | None = None,
        declarations: Mapping[str, str] | None = None,
    ) -> RegistrationReply:
        """Registers a worker. `max_losses` has the number of losses that buries a task, for the
        functions that declare one; `kept_ages` how long dead letters are kept (ms), for the
        functions that declare it; `declarations` how functions are declared, as JSON, for
        observers."""
        declared = [(text_bytes(name), most) for name, most in (max_losses or {}).items()]
        kept = [(text_bytes(name), age) for name, age in (kept_ages or {}).items()]
        names = [text_bytes(name) for name in tasks]
        texts = [part for name, text in (declarations or {}).items() for part in (text_bytes(name), text)]
        terms = (worker.encode(), lease_ms, names, declared, self._fresh_secret, kept, texts)
        now, duty, secret, *waiting = await self.ask("register", terms)
        return RegistrationReply(now, Duty(duty), secret, [bytes_text(name) for name in waiting])

    async def resign(self, worker: str) -> None:
        """Gives up the worker's duty, if it has one."""
        await self.ask("resign", (worker.encode(),))

    async def leave(self, worker: str) -> bool:
        return bool(await self.ask("leave", (worker.encode(),)))

    async def lead(self, duty: str, worker: str, hold_ms: int) -> bool:
        """Elects one worker for a duty that only some
        workers of the fleet can do, such as sampling gauges.

        Returns whether this worker has the duty. It keeps the duty until it has not asked for
        `hold_ms`. For all other workers the question costs one command.
        """
        key, name = text_bytes(self.keys.named("leads", duty)), worker.encode()
        try:
            leader = await self.server.ask(key, "GET", key)
        except DamagedData:
            # Whatever somebody has written there, it is not a worker.
            await self.server.ask(key, "DEL", key)
            leader = None
        if leader is None:
            return bool(await self.server.ask(key, "SET", key, name, "NX", "PX", hold_ms))
        if leader == name:
            # If the key has just expired, another worker may have the duty. This command then does
            # nothing for this worker, and its next GET finds the other worker.
            await self.server.ask(key, "PEXPIRE", key, hold_ms)
        return leader == name

    async def isolate(self, worker: str, delivery: Delivery, *, alone: bool) -> bool:
        """Marks the run as the only body of its process, or
        removes the mark. False if the run no longer counts.

        See docs/design/lease-protocol.md, Suspects.
        """
        terms = (worker.encode(), text_bytes(delivery.key), delivery.epoch, int(alone))
        return bool(await self.ask("isolate", terms))

    # The following methods are for the thread that renews the
    # lease. `client` is the thread's own blocking client.

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
        report: bytes | None = None,
    ) -> Renewal:
        """Renews the lease, and the offer of a slot if there is one.

        A busy worker gets each request to cancel one of its runs at every renewal, until the run is
        over. If no worker has renewed for `late_ms`, workers are not declared dead for a while. If
        a stopping worker dies, its runs have no loss. `report` is what the worker says about
        itself.
        """
        offer_ms = self.offer_ms if has_offer else 0
        terms = (worker.encode(), lease_ms, int(busy), offer_ms, late_ms, int(stopping), report or False)
        reply = self.ask_blocking(client, "renew", terms)
        requests = [
            (int(epoch), bytes_text(key)) for epoch, _, key in (request.partition(b" ") for request in reply[4:])
        ]
        return Renewal(reply[0] == 0, float(reply[1]), reply[0] == 1, bool(reply[2]), bool(reply[3]), requests)

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
        """One step of reclaiming. A worker that is `willing` gets a vacant duty."""
        endings = (self._max_losses, self._lost_endings, self._lost_note.row())
        terms = (worker.encode(), lease_ms, late_ms, int(willing), list(consumers))
        reply: list[int] = self.ask_blocking(client, "reclaim", (*terms, self.ttl_ms, *endings))
        declared, put_back, buried, cancelled, left, look, duty = reply
        return Reclaimed(declared, put_back, buried, cancelled, left, bool(look), Duty(duty))

    def put_back_unclaimed(self, client: Any, worker: str, runs: int, reading: int | None) -> int:
        """Ends the worker's blocked read and puts back
        its unclaimed deliveries. Returns their number."""
        if reading is not None:
            self.server.unblock(client, reading)
        return self.ask_blocking(client, "put_back_unclaimed", (worker.encode(), runs + _UNREAD))

    def consumers_without_lease(self, client: Any) -> list[bytes]:
        """Consumers of workers that are gone. The server creates such a consumer if it answers a
        blocked read after the worker has left."""
        streams = (self.keys.stream, self.keys.front)
        return consumers_without_lease(self.server, client, streams, GROUP, self.keys.leases)

    def correct_leases(self, client: Any) -> None:
        """Corrects leases that end too far in the future
        because the server's clock was set back."""
        cursor = b"0"
        while True:
            cursor = self.ask_blocking(client, "correct_leases", (cursor, _LEASES_AT_ONCE))
            if cursor == b"0":
                return

    def sweep(self, client: Any, size: int, least_ms: int) -> list[int]:
        return self.ask_blocking(client, "sweep", (size, least_ms, self.ttl_ms))


def worker_id(name: str, suffix: str) -> str:
    """The id of a worker. It is a part of key names,
    so special characters in the name are escaped."""
    return f"{segment(name)}~{suffix}"


def new_worker_id(name: str) -> str:
    """The id of a worker that starts.

    It is so long that a run record has more than 64 bytes. The server keeps a small hash with
    shorter values as a list, and would walk over all running tasks for each one that it reads.
    """
    return worker_id(name, secrets.token_hex(16))


def manual_run_id(name: str) -> str:
    """The id of the lease of one run without a worker. The scripts recognise its form."""
    return worker_id(name, f"hand-{secrets.token_hex(6)}")


def worker_name(id: str) -> str:
    return id.rpartition("~")[0].replace("%3A", ":").replace("%25", "%")


def as_json(text: str) -> str:
    return json.dumps(text)
