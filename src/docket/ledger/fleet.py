"""The fleet: workers register, renew their leases, reclaim the work of dead workers and lead; their
reports about themselves, and how processes declare functions and settings."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from docket.codec.packing import pack, unpack
from docket.errors import WorkerLost
from docket.model.times import from_ms, to_ms
from docket.storage.client.faults import DamagedData
from docket.storage.keys import bytes_text, segment, text_bytes
from docket.storage.schema.keys import GROUP
from docket.storage.server import consumers_without_lease

from .calls import Area, ScriptCalls
from .endings import LOST_TEXT, lost_endings, own_ending
from .letters import WORKER_LOST, DeathCause, script_note
from .values import Delivery, Duty, Reclaimed, RegistrationReply, Renewal

_LEASES_AT_ONCE = 100
# The most deliveries, in addition to its runs, that may be in a worker's socket.
_UNREAD = 100
_VERSION = 1
_TEXTS, _NUMBERS = 3, 12
_LOADS = ("slots", "runs", "threads", "threads_busy", "children", "children_busy", "abandoned", "memory")
_LONGEST = 200
_WORKERS_AT_ONCE, _NAMES_AT_ONCE = 100, 200
PRODUCER, WORKER = "producer", "worker"
LIFETIME_MS = 15 * 60 * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport:
    """The report of a worker about itself, sent with its
    renewals. `at` and `started_at` are times of its own clock."""

    at: datetime
    host: str
    pid: int
    # The release of docket, and of Python.
    version: str
    python: str
    started_at: datetime
    # Room for runs, and how many there are.
    slots: int
    runs: int
    # Threads for plain functions and children: how many there may be, and how many are busy.
    threads: int
    threads_busy: int
    children: int
    children_busy: int
    # Threads that go on although their run was given up.
    abandoned: int
    # Bytes, and seconds that the event loop took to answer.
    memory: int
    lag: float

    def pack(self) -> bytes:
        texts = (self.host, self.version, self.python)
        times = (to_ms(self.at), to_ms(self.started_at))
        counts = (self.slots, self.runs, self.threads, self.threads_busy, self.children, self.children_busy)
        numbers = (self.pid, *times, *counts, self.abandoned, self.memory, self.lag)
        return pack((_VERSION, *(text_bytes(text[:_LONGEST]) for text in texts), *numbers))


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A worker that has a lease."""

    id: str
    lease_ends_ms: float
    lease_ms: float
    report: WorkerReport | None
    is_stopping: bool
    is_leader: bool
    is_deputy: bool
    functions: tuple[str, ...]

    @property
    def last_seen_ms(self) -> float:
        return self.lease_ends_ms - self.lease_ms


@dataclass(frozen=True, slots=True)
class Declaration:
    """The settings of one process."""

    role: str
    process: str
    settings: dict[str, Any]


class Fleet(Area):
    """The workers of one docket."""

    def __init__(self, calls: ScriptCalls) -> None:
        super().__init__(calls)
        self._lost_endings = lost_endings()
        text = own_ending(WorkerLost(LOST_TEXT.format("#"))).error or ""
        self._lost_note = script_note(calls.keep, DeathCause.BURIED, WORKER_LOST, text)

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
        terms = (worker.encode(), lease_ms, names, declared, self._calls.fresh_secret, kept, texts)
        now, duty, secret, *waiting = await self._calls.run_script("register", terms)
        return RegistrationReply(now, Duty(duty), secret, [bytes_text(name) for name in waiting])

    async def resign(self, worker: str) -> None:
        """Gives up the worker's duty, if it has one."""
        await self._calls.run_script("resign", (worker.encode(),))

    async def leave(self, worker: str) -> bool:
        return bool(await self._calls.run_script("leave", (worker.encode(),)))

    async def lead(self, duty: str, worker: str, hold_ms: int) -> bool:
        """Elects one worker for a duty that only some
        workers of the fleet can do, such as sampling gauges.

        Returns whether this worker has the duty. It keeps the duty until it has not asked for
        `hold_ms`. For all other workers the question costs one command.
        """
        key, name = text_bytes(self._calls.keys.named("leads", duty)), worker.encode()
        try:
            leader = await self._calls.server.ask(key, "GET", key)
        except DamagedData:
            # Whatever somebody has written there, it is not a worker.
            await self._calls.server.ask(key, "DEL", key)
            leader = None
        if leader is None:
            return bool(await self._calls.server.ask(key, "SET", key, name, "NX", "PX", hold_ms))
        if leader == name:
            # If the key has just expired, another worker may have the duty. This command then does
            # nothing for this worker, and its next GET finds the other worker.
            await self._calls.server.ask(key, "PEXPIRE", key, hold_ms)
        return leader == name

    async def isolate(self, worker: str, delivery: Delivery, *, alone: bool) -> bool:
        """Marks the run as the only body of its process, or
        removes the mark. False if the run no longer counts.

        See docs/design/lease-protocol.md, Suspects.
        """
        terms = (worker.encode(), text_bytes(delivery.key), delivery.epoch, int(alone))
        return bool(await self._calls.run_script("isolate", terms))

    # The following methods are for the thread that renews the
    # lease. `client` is the thread's own blocking client.

    def leave_blocking(self, client: Any, worker: str) -> None:
        self._calls.run_script_blocking(client, "leave", (worker.encode(),))

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
        offer_ms = self._calls.offer_ms if has_offer else 0
        terms = (worker.encode(), lease_ms, int(busy), offer_ms, late_ms, int(stopping), report or False)
        reply = self._calls.run_script_blocking(client, "renew", terms)
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
        endings = (self._calls.max_losses, self._lost_endings, self._lost_note.row())
        terms = (worker.encode(), lease_ms, late_ms, int(willing), list(consumers))
        reply: list[int] = self._calls.run_script_blocking(client, "reclaim", (*terms, self._calls.ttl_ms, *endings))
        declared, put_back, buried, cancelled, left, look, duty = reply
        return Reclaimed(declared, put_back, buried, cancelled, left, bool(look), Duty(duty))

    def put_back_unclaimed(self, client: Any, worker: str, runs: int, reading: int | None) -> int:
        """Ends the worker's blocked read and puts back
        its unclaimed deliveries. Returns their number."""
        if reading is not None:
            self._calls.server.unblock(client, reading)
        return self._calls.run_script_blocking(client, "put_back_unclaimed", (worker.encode(), runs + _UNREAD))

    def consumers_without_lease(self, client: Any) -> list[bytes]:
        """Consumers of workers that are gone. The server creates such a consumer if it answers a
        blocked read after the worker has left."""
        streams = (self._calls.keys.stream, self._calls.keys.front)
        return consumers_without_lease(self._calls.server, client, streams, GROUP, self._calls.keys.leases)

    def correct_leases(self, client: Any) -> None:
        """Corrects leases that end too far in the future
        because the server's clock was set back."""
        cursor = b"0"
        while True:
            cursor = self._calls.run_script_blocking(client, "correct_leases", (cursor, _LEASES_AT_ONCE))
            if cursor == b"0":
                return

    def sweep(self, client: Any, size: int, least_ms: int) -> list[int]:
        return self._calls.run_script_blocking(client, "sweep", (size, least_ms, self._calls.ttl_ms))

    async def workers(self) -> list[FleetRow]:
        """All workers that have a lease, read page by page."""
        found: dict[str, FleetRow] = {}
        cursor = b"0"
        while True:
            cursor, leader, deputy, *rows = await self._calls.run_script("list_fleet", (cursor, _WORKERS_AT_ONCE))
            for i in range(0, len(rows), 6):
                id, ends, length, report, stopping, names = rows[i : i + 6]
                functions = tuple(sorted(bytes_text(name) for name in names))
                duties = (id == leader, id == deputy)
                times = (_number(ends), _number(length))
                row = FleetRow(bytes_text(id), *times, read_report(report), bool(stopping), *duties, functions)
                found[row.id] = row
            if cursor == b"0":
                return list(found.values())

    async def declarations(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """How these functions are declared; those that are not are left out."""
        found: dict[str, dict[str, Any]] = {}
        for first in range(0, len(names), _NAMES_AT_ONCE):
            some = names[first : first + _NAMES_AT_ONCE]
            reply = await self._calls.run_script("read_declarations", [text_bytes(name) for name in some])
            found |= {name: read for name, data in zip(some, reply, strict=True) if (read := read_declaration(data))}
        return found

    async def declare_settings(self, own: Declaration) -> list[Declaration]:
        """Declares the settings of this process and returns the declarations of all processes."""
        text = f"{own.role} {json.dumps(own.settings, sort_keys=True, separators=(',', ':'))}"
        reply = await self._calls.run_script("settings", (text_bytes(text), text_bytes(own.process), LIFETIME_MS))
        return [found for row in reply if (found := _declaration(bytes_text(row[0]), bytes_text(row[1]))) is not None]


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


def read_report(data: bytes | None) -> WorkerReport | None:
    """The report, or None for bytes that are not one."""
    if not data:
        return None
    try:
        values: list[Any] = list(unpack(data))
        host, version, python = (bytes_text(text) for text in values[1 : 1 + _TEXTS])
        numbers = values[1 + _TEXTS : 1 + _TEXTS + _NUMBERS]
        if len(numbers) < _NUMBERS or not all(_is_number(number) for number in numbers):
            return None
        pid, at, started = (int(number) for number in numbers[:3])
        loads: dict[str, Any] = {name: int(number) for name, number in zip(_LOADS, numbers[3:11], strict=True)}
        return WorkerReport(
            at=from_ms(at),
            host=host,
            pid=pid,
            version=version,
            python=python,
            started_at=from_ms(started),
            lag=float(numbers[11]),
            **loads,
        )
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 2**53


def read_declaration(data: bytes | None) -> dict[str, Any]:
    """The declaration of a function; empty for bytes that are not one."""
    if not data:
        return {}
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _number(data: bytes) -> float:
    """The number; 0 if somebody has written something else."""
    try:
        number = float(data)
    except ValueError:
        return 0.0
    return number if abs(number) < 2**53 else 0.0


def _declaration(declaration: str, process: str) -> Declaration | None:
    """None for a declaration of another release that this release cannot read."""
    role, _, text = declaration.partition(" ")
    try:
        settings = json.loads(text)
    except ValueError:
        return None
    return Declaration(role, process, cast("dict[str, Any]", settings)) if isinstance(settings, dict) else None
