"""The ledger of one docket: every verb is one script on the server's clock."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any

from docket.codec.packing import pack_for_script, script_packer
from docket.model.losses import MAX_LOSSES
from docket.model.states import ExecutionState
from docket.storage.consumers import consumers_without_lease
from docket.storage.keys import GROUP, Keys, bytes_text, segment, text_bytes
from docket.storage.records import (
    SCHEDULED,
    read_finished,
    read_run,
    read_task,
)
from docket.storage.server import Server

from .deliveries import read_deliveries
from .endings import lost_endings
from .payloads import Payloads
from .rows import Look, PageRow, Receipt, WorkerRow
from .settlements import ANSWERS, Answer, Settlement
from .values import (
    Census,
    Delivery,
    Duty,
    Entry,
    KeptSlot,
    Order,
    ProgressChange,
    Reclaimed,
    Registration,
    Renewal,
    Seed,
    Staged,
    SuspectNotes,
    Taken,
    UnknownEntry,
    Unwritten,
    WaitingFunctions,
)

# Tasks per script call: large enough to share the round trip, small enough to hold the server for a few ms only.
BATCH = 500
# New tasks cost the server more each, above all those with keys that it has to look up.
ENQUEUE_BATCH = 200
# How long an offer of a slot stands unless it is renewed: a worker whose event loop is blocked must not be given work for long.
OFFER_MS = 8000
_FRESH, _REPLACE, _NOW, _STORED, _UNANSWERED, _SEED = 1, 2, 4, 8, 16, 32
_PAGE = 500
_INSPECTED = 100
# Deliveries beside its runs that a worker may have in its socket.
_UNREAD = 100


class Ledger:
    """The books of one docket. Safe to share between tasks of one event loop."""

    def __init__(self, server: Server, keys: Keys, ttl_ms: int, max_losses: int = MAX_LOSSES) -> None:
        self.server = server
        self.keys = keys
        self.ttl_ms = ttl_ms
        self._channels = text_bytes(keys.channels)
        self._root = [keys.root]
        # For the event loop; threads that renew leases pack with a buffer of their own.
        self._pack = script_packer()
        self.payloads: Payloads = Payloads(server, keys)
        self._max_losses = max_losses
        self._lost_endings = lost_endings()

    async def enqueue(self, orders: Sequence[Order]) -> list[Receipt]:
        reply = await self._run(
            "enqueue",
            [
                (
                    text_bytes(o.key),
                    o.due_ms,
                    _mode(o),
                    text_bytes(o.function_name),
                    o.call,
                    o.attempt,
                )
                for o in orders
            ],
        )
        return [
            Receipt(
                reply[i] in (1, 2),
                reply[i + 1],
                reply[i + 2],
                ExecutionState.SCHEDULED if reply[i + 3] == SCHEDULED else ExecutionState.QUEUED,
                reply[i] == 2,
                reply[i] == 3,
            )
            for i in range(1, len(reply), 4)
        ]

    async def take(
        self,
        worker: str,
        worker_json: str,
        count: int,
        kept: KeptSlot | None = None,
        notes: SuspectNotes | None = None,
        *,
        functions: WaitingFunctions | None = None,
        reads_front: bool = True,
    ) -> list[Delivery] | None:
        """Claims up to `count` ready tasks without waiting; None if the worker has no lease.

        A slot that is kept for an offer is beside the count. It is used, too, unless a hand-over is on its way for it; if
        there is nothing to take it is offered, where that is wanted. `kept.answer` tells which. Tasks that wait for a worker
        that knows one of these `functions` go before others.
        """
        terms = (0, 0, 0, 0)
        if kept is not None:
            terms = (1, int(kept.offered), kept.last_epoch, OFFER_MS if kept.to_offer else 0)
        names = [text_bytes(name) for name in functions.names] if functions is not None else False
        mode = 1 if notes is None else notes.mode
        reply = await self._run(
            "take", (worker.encode(), worker_json, min(count, BATCH), *terms, 1 if reads_front else 0, names, mode)
        )
        if kept is not None and reply[0] != -1:
            kept.answer = reply[1]
        if functions is not None and reply[0] != -1:
            functions.left = [bytes_text(name) for name in reply.pop()]
        return read_deliveries(reply, notes)

    async def withdraw_offer(self, worker: str) -> bool:
        """Whether the offer still stood; nothing is handed over from now on."""
        offers = text_bytes(self.keys.offers)
        return bool(await self.server.ask(offers, "ZREM", offers, worker.encode()))

    async def claim(
        self,
        worker: str,
        worker_json: str,
        entries: Sequence[Entry],
        notes: SuspectNotes | None = None,
        *,
        gives_up: bool = False,
        runs_suspects: bool = True,
    ) -> list[Delivery] | None:
        """Claims what a blocking read delivered; suspects may be left to other workers. A worker that `gives_up` puts back
        the suspect that it has reserved."""
        rows = [(int(e.from_front), e.id, e.key) for e in entries]
        suspects = 2 if gives_up else notes.mode if notes is not None else int(runs_suspects)
        reply = await self._run("claim", (worker.encode(), worker_json, rows, suspects))
        return read_deliveries(reply, notes)

    async def unknown_deliveries(self, worker: str, epochs: Sequence[int], seen: Sequence[Entry]) -> list[UnknownEntry]:
        """Deliveries that count as this worker's and belong to none of these runs; `seen` are those of the last look."""
        rows = [(int(e.from_front), e.id) for e in seen]
        reply = await self._run("unknown_deliveries", (worker.encode(), list(epochs), rows))
        return [
            UnknownEntry(bool(front), id.decode(), key, epoch, bool(before)) for front, id, key, epoch, before in reply
        ]

    async def settle(
        self, settlements: Sequence[Settlement], offering: str | None = None, *, patience: float | None = None
    ) -> tuple[int, list[Answer]]:
        """Writes endings down; returns how many tasks are unfinished, and an answer for each settlement.

        A worker that is `offering` has a slot to spare, which the next task that comes may fill.
        """
        offer = offering.encode() if offering is not None else False
        worker = settlements[0].worker if settlements else None
        items = [s.item if s.worker == worker else s.item_of_another() for s in settlements]
        claimed_by = worker.encode() if worker is not None else False
        arguments = (self.ttl_ms, offer, OFFER_MS, items, claimed_by)
        reply = await self._run("settle", arguments, patience)
        return reply[0], [ANSWERS[code] for code in reply[1:]]

    async def stage(self, most: int = BATCH, worker: str | None = None, *, summoned: bool = False) -> Staged:
        """Moves due tasks to the stream. A worker does so only if it leads, or takes over because a task is overdue."""
        name = worker.encode() if worker is not None else False
        moved, now, following, duty = await self._run("stage", (most, name, int(summoned)))
        return Staged(moved, float(now), None if following == b"-1" else float(following), Duty(duty))

    async def next_due_ms(self) -> float | None:
        """When the next scheduled task is due."""
        queue = text_bytes(self.keys.queue)
        head = await self.server.ask(queue, "ZRANGE", queue, 0, 0, "WITHSCORES")
        return float(head[1]) if head else None

    async def cancel(self, key: str) -> int:
        """0 nothing there, 1 cancelled, 2 its worker was told."""
        return await self._run("cancel", (text_bytes(key), self.ttl_ms))

    async def clear(self) -> int:
        cursor, removed = "0", 0
        while True:
            cursor, count = await self._run("clear", (cursor, 200, self.ttl_ms))
            removed += count
            cursor = cursor.decode()
            if cursor == "0":
                return removed

    async def progress(self, changes: Sequence[ProgressChange]) -> list[bytes | Unwritten]:
        """The progress of each task as it is now, as JSON."""
        reply = await self._run("progress", [change.row() for change in changes])
        return [answer if isinstance(answer, bytes) else Unwritten(answer) for answer in reply]

    async def acquire(
        self, key: str, epoch: int, limits: Sequence[tuple[str, int]], *, taken: Sequence[Taken] = ()
    ) -> tuple[int, int]:
        """1 all slots acquired, 2 parked (this run is over), 0 lost; and which limit was full, counted from 1.

        A run that is parked gives back what it has `taken` of other limits.
        """
        code, full = await self._run(
            "acquire",
            (
                text_bytes(key),
                epoch,
                [(_limit_segment(name), most) for name, most in limits],
                self.ttl_ms,
                taken,
            ),
        )
        return code, full

    async def seize(self, key: str, worker: str, hand: str, lease_ms: int) -> tuple[float, int]:
        """Claims a task by key for a caller that runs it by hand, with a lease: server ms, epoch (0: it does not wait)."""
        now, epoch = await self._run("seize", (text_bytes(key), text_bytes(hand), as_json(worker), lease_ms))
        return now, epoch

    async def hold(self, hands: Sequence[str], lease_ms: int) -> None:
        """Extends the leases of runs that were claimed by hand."""
        await self._run("hold", (lease_ms, [text_bytes(hand) for hand in hands]))

    async def look(self, key: str) -> Look:
        task, run, progress, finished = await self._run("look", (text_bytes(key),))
        return Look(
            read_task(task) if task is not None else None,
            read_run(run) if run else None,
            progress or None,
            read_finished(finished) if finished else None,
        )

    async def pages(self, *, with_calls: bool = False) -> AsyncIterator[list[PageRow]]:
        """Every unfinished task, page by page; one that moves meanwhile may be seen twice."""
        cursor = "0"
        while True:
            reply = await self._run("page", (0, cursor, _PAGE, int(with_calls), False))
            yield [
                PageRow(
                    bytes_text(reply[i]),
                    read_task(reply[i + 1]),
                    read_run(reply[i + 3]) if reply[i + 3] else None,
                )
                for i in range(2, len(reply), 4)
            ]
            cursor = reply[0].decode()
            if cursor == "0":
                return

    async def census(self) -> Census:
        now, unfinished, running, scheduled, parked, dead, limits, slots, oldest, unknown = await self._run(
            "census", ()
        )
        oldest_ms = float(oldest.partition(b"-")[0]) if oldest else None
        return Census(now, unfinished, running, scheduled, parked, dead, limits, slots, oldest_ms, unknown)

    async def roster(self, task: str | None = None) -> list[WorkerRow]:
        reply = await self._run("roster", (text_bytes(task) if task is not None else False,))
        return [WorkerRow(id.decode(), float(seen), {bytes_text(name) for name in names}) for id, seen, names in reply]

    async def unfinished(self) -> int:
        return (await self.census()).unfinished

    async def register(
        self, worker: str, lease_ms: int, tasks: Sequence[str], max_losses: Mapping[str, int] | None = None
    ) -> Registration:
        """Puts a worker on the roster; `max_losses` has the tasks that declare how many losses bury them."""
        declared = [(text_bytes(name), most) for name, most in (max_losses or {}).items()]
        names = [text_bytes(name) for name in tasks]
        now, duty, *waiting = await self._run("register", (worker.encode(), lease_ms, names, declared))
        return Registration(now, Duty(duty), [bytes_text(name) for name in waiting])

    async def seedable(self, deploy: str, names: Sequence[str]) -> list[Seed]:
        """What is to be done about automatic tasks, for a worker of this deploy."""
        reply = await self._run("seed", (deploy, [text_bytes(name) for name in names]))
        return [Seed(code) for code in reply]

    async def resign(self, worker: str) -> None:
        """Gives up the worker's duty, if it has one."""
        await self._run("resign", (worker.encode(),))

    async def leave(self, worker: str) -> bool:
        return bool(await self._run("leave", (worker.encode(),)))

    # For the thread that keeps the lease; `client` is a blocking one of its own.

    def leave_blocking(self, client: Any, worker: str) -> None:
        self._run_blocking(client, "leave", (worker.encode(),))

    def renew(
        self,
        client: Any,
        worker: str,
        lease_ms: int,
        late_ms: int,
        *,
        busy: bool,
        offering: bool = False,
        stopping: bool = False,
    ) -> Renewal:
        """Extends the lease, and the offer of a slot if there is one; an order is shown to a busy worker at every renewal
        until its run is over. If nobody has renewed for `late_ms`, nobody is declared dead for a while.
        If a worker dies that is stopping, its runs do not count as lost."""
        offer_ms = OFFER_MS if offering else 0
        terms = (worker.encode(), lease_ms, int(busy), offer_ms, late_ms, int(stopping))
        reply = self._run_blocking(client, "renew", terms)
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
        reply: list[int] = self._run_blocking(client, "reclaim", (*terms, self.ttl_ms, *endings))
        declared, put_back, buried, cancelled, left, look, duty = reply
        return Reclaimed(declared, put_back, buried, cancelled, left, bool(look), Duty(duty))

    def release_unread(self, client: Any, worker: str, runs: int, reading: int | None) -> int:
        """Ends the worker's blocked read and puts back what it was sent and has not claimed; returns how much."""
        if reading is not None:
            self.server.unblock(client, reading)
        return self._run_blocking(client, "release", (worker.encode(), runs + _UNREAD))

    def consumers_without_lease(self, client: Any) -> list[bytes]:
        """Consumers of workers that are gone: a blocking read of theirs was answered afterwards."""
        streams = (self.keys.stream, self.keys.front)
        return consumers_without_lease(self.server, client, streams, GROUP, self.keys.leases)

    def inspect(self, client: Any) -> None:
        """Corrects leases that a clock that was set back has left too far ahead, page by page."""
        cursor = b"0"
        while True:
            cursor = self._run_blocking(client, "inspect", (cursor, _INSPECTED))
            if cursor == b"0":
                return

    def sweep(self, client: Any, size: int, least_ms: int) -> list[int]:
        return self._run_blocking(client, "sweep", (size, least_ms, self.ttl_ms))

    async def ask(self, script: str, arguments: Any) -> Any:
        """Runs a script that is not one of the lifecycle's (see queries and limits)."""
        return await self._run(script, arguments)

    def _run(self, script: str, arguments: Any, patience: float | None = None) -> Coroutine[Any, Any, Any]:
        return self.server.run(script, self._root, self._channels, self._pack(arguments), patience=patience)

    def _run_blocking(self, client: Any, script: str, arguments: Any) -> Any:
        return self.server.run_blocking(client, script, self._root, self._channels, pack_for_script(arguments))


def _mode(order: Order) -> int:
    mode = _NOW if order.now else 0
    if order.payload is not None:
        mode |= _STORED
    if order.seed:
        mode |= _SEED
    if order.unanswered:
        return mode | _UNANSWERED
    if order.replace:
        mode |= _REPLACE
    return mode | _FRESH if order.fresh else mode


def _limit_segment(name: str) -> bytes:
    """A limit's name is part of key names and of a list joined by newlines; it must not be empty there."""
    return text_bytes(segment(name).replace("\n", "%0A") or "%")


def worker_id(name: str, suffix: str) -> str:
    """A worker's id is part of key names, so it is a segment; the name stays readable."""
    return f"{segment(name)}~{suffix}"


def hand_id(name: str) -> str:
    """The id of a lease for one run by hand, as the scripts know it."""
    return worker_id(name, f"hand-{secrets.token_hex(6)}")


def worker_name(id: str) -> str:
    return id.rpartition("~")[0].replace("%3A", ":").replace("%25", "%")


def as_json(text: str) -> str:
    return json.dumps(text)
