"""Short words for what the tests do with a ledger."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import redis

from docket.ledger import (
    Delivery,
    EnqueueResult,
    Entry,
    Ledger,
    NewTask,
    Reclaimed,
    Renewal,
    Settlement,
    SettleResult,
    SuspectNotes,
    finish,
)
from docket.ledger.endings import Ending, ending_event
from docket.ledger.letters import DeathCause, LetterNote
from docket.model.states import ExecutionState
from docket.model.task_keys import key_end
from docket.storage.keys import Keys, bytes_text, text_bytes
from docket.storage.records import name_in_record
from docket.storage.server import Server
from tests.payloads import encode_call

from .invariants import GROUP, StoredState, key_of, problems, read_stored_state

# So long that it ends only when a test says so.
LEASE_MS = 600_000
LATE_MS = LEASE_MS // 3
TTL_MS = 900_000
LETTER_MS = 7 * 86_400_000
CALL = encode_call((), {})
NO_EVENT = "{}"
COUNTS = ("declared", "put_back", "buried", "cancelled")


def blocking_client(server: Server) -> Any:
    """A client of redis-py on that server, for the test's own look at it."""
    options = {**server.address.options, "db": server.database}
    if "path" in options:
        options["unix_socket_path"] = options.pop("path")
    return redis.Redis(**options, socket_timeout=90.0)


def new_ledger(server: Server, name: str = "stored_state", ttl_ms: int = TTL_MS, **options: Any) -> Ledger:
    return Ledger(server, Keys(name, database=server.database), ttl_ms, **options)


def new_task(key: str, call: bytes = CALL, function: str = "f", **options: Any) -> NewTask:
    return NewTask(key, function, call, **options)


def generated_key(number: int) -> str:
    """A key as docket generates them."""
    return f"01a1eed1-cee8-7ba8-8740-{number:012x}"


def new_call(key: str, due_ms: float, call: bytes = b"") -> list[Any]:
    """A call with a generated key, as the script of bulk scheduling takes it."""
    return [text_bytes(key), due_ms, name_in_record("f") + call, key_end(key)]


def completed(run: Delivery, **options: Any) -> Settlement:
    return ended(run, ExecutionState.COMPLETED, **options)


def ended(
    run: Delivery, state: ExecutionState, *, ttl_ms: int = TTL_MS, dead_letter: bool = False, **options: Any
) -> Settlement:
    event = ending_event(state, '"w"', 0)
    if dead_letter:
        options["letter"] = LetterNote(DeathCause.FAILED, LETTER_MS, error="Oops", place="here")
    return finish(run.key, run.epoch, state, ttl_ms, Ending("w").pack(), event, **options)


class LedgerClient:
    """A ledger, the blocking client of its lease keeper, and what a test wants to know."""

    def __init__(self, ledger: Ledger, client: Any) -> None:
        self.ledger = ledger
        self.client = client
        self._numbers = itertools.count(1)

    def stored_state(self) -> StoredState:
        return read_stored_state(self.ledger, self.client)

    def checked_state(self, **options: Any) -> StoredState:
        """The stored state, after a look at everything that must hold."""
        stored_state = self.stored_state()
        found = problems(stored_state, **options)
        assert not found, found
        return stored_state

    async def hire(self, *tasks: str, lease_ms: int = LEASE_MS) -> str:
        worker = f"w~{next(self._numbers)}"
        await self.ledger.fleet.register(worker, lease_ms, tasks or ("f",))
        return worker

    async def hire_with(self, max_losses: dict[str, int]) -> str:
        """A worker whose tasks declare how many losses bury them."""
        worker = f"w~{next(self._numbers)}"
        await self.ledger.fleet.register(worker, LEASE_MS, list(max_losses), max_losses)
        return worker

    async def add(self, *keys: str, **options: Any) -> list[EnqueueResult]:
        return await self.ledger.tasks.enqueue([new_task(key, **options) for key in keys])

    async def take(self, worker: str, count: int = 100) -> list[Delivery]:
        notes = SuspectNotes()
        deliveries = await self.ledger.deliveries.take(worker, '"w"', count, None, notes)
        assert deliveries is not None, "the worker has no lease"
        await self.isolate(worker, deliveries, notes)
        return deliveries

    async def isolate(self, worker: str, deliveries: list[Delivery] | None, notes: SuspectNotes) -> None:
        """What a worker does with a suspect that it has to
        itself, in a process where nothing else runs."""
        for delivery in deliveries or ():
            if delivery.epoch == notes.alone:
                assert await self.ledger.fleet.isolate(worker, delivery, alone=True)

    async def start(self, worker: str, key: str, **options: Any) -> Delivery:
        """Adds a task that is then the only one to be taken."""
        await self.add(key, **options)
        (run,) = await self.take(worker)
        assert run.key == key
        return run

    def read(self, worker: str, count: int = 100) -> list[Entry]:
        """What a worker's blocking read does: delivers, and leaves the claim for later."""
        streams = {self.ledger.keys.front: ">", self.ledger.keys.stream: ">"}
        reply = self.client.xreadgroup(GROUP, worker, streams, count=count)
        return [
            Entry(bytes_text(name) == self.ledger.keys.front, id.decode(), key_of(fields))
            for name, entries in reply
            for id, fields in entries
        ]

    async def claim(self, worker: str, entries: list[Entry], *, gives_up: bool = False) -> list[Delivery] | None:
        notes = SuspectNotes()
        deliveries = await self.ledger.deliveries.claim(worker, '"w"', entries, notes, gives_up=gives_up)
        await self.isolate(worker, deliveries, notes)
        return deliveries

    async def acquire(self, key: str, epoch: int, limits: Sequence[tuple[str, int]], **options: Any) -> int:
        """1 acquired, 2 parked, 0 lost."""
        return (await self.ledger.limits.acquire(key, epoch, limits, **options))[0]

    async def settle(self, *settlements: Settlement) -> list[SettleResult]:
        return await self.ledger.tasks.settle(settlements)

    def renew(self, worker: str, *, stopping: bool = False) -> Renewal:
        return self.ledger.fleet.renew(self.client, worker, LEASE_MS, LATE_MS, busy=True, stopping=stopping)

    def end_lease(self, worker: str) -> None:
        """The worker has not renewed for too long."""
        self.client.zadd(self.ledger.keys.leases, {text_bytes(worker): 1}, xx=True)

    def _consumers_without_lease(self) -> list[bytes]:
        client = self.ledger.server.threaded_client(lambda: 90.0)
        try:
            return self.ledger.fleet.consumers_without_lease(client)
        finally:
            client.close()

    def reclaim(self, worker: str = "somebody", *, thorough: bool = True) -> list[int]:
        """One step: declared dead, put back, buried, cancelled, left. A thorough one looks for
        consumers of the gone, too, as every step does that answers a call."""
        consumers = self._consumers_without_lease() if thorough else []
        step = self._reclaim(worker, consumers)
        if step.look_for_consumers and not thorough:
            consumers = self._consumers_without_lease()
            if consumers:
                more = self._reclaim(worker, consumers)
                step.add(more)
                step.left, step.look_for_consumers, step.duty = more.left, False, more.duty
        return [*(getattr(step, name) for name in COUNTS), step.left]

    def _reclaim(self, worker: str, consumers: list[bytes]) -> Reclaimed:
        return self.ledger.fleet.reclaim(self.client, worker, LEASE_MS, LATE_MS, consumers=consumers)

    def forget_reclaimer(self) -> None:
        """As if the worker that was told to reclaim had done nothing for a second."""
        self.client.hset(self.ledger.keys.key("fleet"), "reclaiming", self.now() - 1)

    def stall(self, ms: int) -> None:
        """Nobody could reach the server for so long: all
        that it knows of the fleet is that much older."""
        for name in self.client.zrange(self.ledger.keys.leases, 0, -1):
            if name != b"\1grace":
                self.client.zincrby(self.ledger.keys.leases, -ms, name)

    def bury(self, worker: str) -> list[int]:
        """The worker is dead, and the others put back all that it had."""
        self.end_lease(worker)
        steps = [self.reclaim()]
        while steps[-1][4]:
            steps.append(self.reclaim())
        return [sum(counts) for counts in list(zip(*steps, strict=True))[:4]] + [0]

    def sweep(self) -> int:
        """How many tasks had to be mended."""
        return self.ledger.fleet.sweep(self.client, 500, 0)[1]

    def fall_due(self, *keys: str) -> None:
        """As if their time had come."""
        if keys:
            self.client.zadd(self.ledger.keys.schedule, {text_bytes(key): 1 for key in keys}, xx=True)

    def later(self) -> float:
        return self.now() + 3_600_000

    def now(self) -> int:
        seconds, microseconds = self.client.time()
        return seconds * 1000 + microseconds // 1000
