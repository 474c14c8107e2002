"""What workers report about themselves, and how functions are declared (docs/design/web.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from docket.codec.packing import pack, unpack
from docket.model.times import from_ms, to_ms
from docket.storage.keys import bytes_text, text_bytes

from .ledger import Ledger

_VERSION = 1
_TEXTS, _NUMBERS = 3, 12
_LOADS = ("slots", "runs", "threads", "threads_busy", "children", "children_busy", "abandoned", "memory")
_LONGEST = 200
_WORKERS_AT_ONCE, _NAMES_AT_ONCE = 100, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport:
    """What a worker says about itself with its renewals. `at` and `started_at` are times of its own
    clock."""

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


async def list_fleet(ledger: Ledger) -> list[FleetRow]:
    """All workers that have a lease, read page by page."""
    found: dict[str, FleetRow] = {}
    cursor = b"0"
    while True:
        cursor, leader, deputy, *rows = await ledger.ask("list_fleet", (cursor, _WORKERS_AT_ONCE))
        for i in range(0, len(rows), 6):
            id, ends, length, report, stopping, names = rows[i : i + 6]
            functions = tuple(sorted(bytes_text(name) for name in names))
            duties = (id == leader, id == deputy)
            times = (_number(ends), _number(length))
            row = FleetRow(bytes_text(id), *times, read_report(report), bool(stopping), *duties, functions)
            found[row.id] = row
        if cursor == b"0":
            return list(found.values())


def _number(data: bytes) -> float:
    """The number; 0 if somebody has written something else."""
    try:
        number = float(data)
    except ValueError:
        return 0.0
    return number if abs(number) < 2**53 else 0.0


async def read_declarations(ledger: Ledger, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How these functions are declared; those that are not are left out."""
    found: dict[str, dict[str, Any]] = {}
    for first in range(0, len(names), _NAMES_AT_ONCE):
        some = names[first : first + _NAMES_AT_ONCE]
        reply = await ledger.ask("read_declarations", [text_bytes(name) for name in some])
        found |= {name: read for name, data in zip(some, reply, strict=True) if (read := read_declaration(data))}
    return found
