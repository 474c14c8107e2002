"""Tasks that another program keeps under a docket's names (docs/design/foreign-tasks.md)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from docket.codec.pickled import encode_pickled_call
from docket.errors import TRANSIENT
from docket.model.times import to_ms
from docket.storage.keys import bytes_text, text_bytes

from .ledger import Ledger
from .payloads import LARGEST_CALL, Payload, call_payload

logger: logging.Logger = logging.getLogger("docket.foreign")

_PAGE = 200
_OWN_FIELD = b"k"
_FIELDS = (b"key", b"when", b"function", b"args", b"kwargs", b"attempt", b"generation")
_TRIES = 3
_TAKEN, _ALREADY_THERE, _PAYLOAD_MISSING = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ForeignCount:
    """How many tasks of another program there are: scheduled,
    on the stream, and set aside by workers of ours."""

    scheduled: int
    entries: int
    set_aside: int

    @property
    def total(self) -> int:
        return self.scheduled + self.entries + self.set_aside


@dataclass(slots=True)
class Imported:
    """What became of them. `unreadable` ones were left where they are; so were `strikes`, a number
    of instructions. Those that are `already_there`, by key, are kept until docket's own tasks of
    these keys have ended."""

    scheduled: int = 0
    queued: int = 0
    already_there: list[str] = field(default_factory=list[str])
    unreadable: list[str] = field(default_factory=list[str])
    strikes: int = 0


@dataclass(slots=True)
class _Task:
    source: str
    id: bytes
    key: bytes
    due_ms: float
    function_name: bytes
    call: bytes
    attempt: int
    payload: Payload | None

    def item(self) -> tuple[Any, ...]:
        call = self.call if self.payload is None else self.payload.reference
        stored = int(self.payload is not None)
        return (self.source, self.id, self.key, self.due_ms, self.function_name, call, self.attempt, stored)


async def count_foreign(ledger: Ledger) -> ForeignCount:
    return ForeignCount(*await ledger.ask("count_foreign", ()))


async def warn_of_foreign(ledger: Ledger, name: str) -> None:
    """Says once what another program left under this
    name. Without a server there is nothing to say."""
    if not ledger.server.is_reached:
        return
    try:
        found = await count_foreign(ledger)
    except TRANSIENT:
        return
    if found.total:
        logger.warning(
            "docket %r: %d tasks that pydocket stored under this name wait (%d scheduled, %d queued or running, "
            "%d set aside); workers do not run them. `docket import --docket %s` takes them over",
            name, found.total, found.scheduled, found.entries, found.set_aside, name,
        )  # fmt: skip


async def import_foreign(ledger: Ledger) -> Imported:
    """Moves every task that can be read, each with one script call: interrupted, the next import
    goes on with the rest."""
    imported = Imported()
    # One that is set aside on the way is met again: a key counts once.
    already_there: dict[str, None] = {}
    async for page in _pages(ledger, imported):
        if not page:
            continue
        for task in page:
            if task.payload is not None:
                await ledger.payloads.store(task.payload)
        answers: list[int] = await ledger.ask("adopt", [task.item() for task in page])
        for task, answer in zip(page, answers, strict=True):
            if answer == _PAYLOAD_MISSING:
                answer = await _adopt_again(ledger, task)
            if answer == _ALREADY_THERE:
                already_there[bytes_text(task.key)] = None
            elif answer == _TAKEN and task.source == "queue":
                imported.scheduled += 1
            elif answer == _TAKEN:
                imported.queued += 1
    imported.already_there = list(already_there)
    imported.strikes = await _count_strikes(ledger)
    return imported


async def _adopt_again(ledger: Ledger, task: _Task) -> int:
    answer = _PAYLOAD_MISSING
    for _ in range(_TRIES):
        if answer == _PAYLOAD_MISSING and task.payload is not None:
            await ledger.payloads.store(task.payload)
            (answer,) = await ledger.ask("adopt", [task.item()])
    return answer


async def _pages(ledger: Ledger, imported: Imported) -> AsyncIterator[list[_Task]]:
    """Everything there is, a page at a time; a page is adopted before the next one is read."""
    async for rows in _scheduled(ledger):
        yield _read(rows, imported)
    for source in ("stream", "foreign"):
        async for rows in _entries(ledger, source):
            yield _read(rows, imported)


_Row = tuple[str, bytes, bytes | None, dict[bytes, bytes]]


def _read(rows: Iterable[_Row], imported: Imported) -> list[_Task]:
    tasks: list[_Task] = []
    for source, id, key, fields in rows:
        try:
            tasks.append(_task(source, id, fields))
        except (KeyError, ValueError):
            imported.unreadable.append(bytes_text(key or fields.get(_FIELDS[0], id)))
    return tasks


def _task(source: str, id: bytes, fields: dict[bytes, bytes]) -> _Task:
    """Raises KeyError or ValueError if it is not a task as pydocket stores it."""
    trace = {bytes_text(name): bytes_text(value) for name, value in fields.items() if name not in _FIELDS}
    call = encode_pickled_call(fields[b"args"], fields[b"kwargs"], trace)
    due_ms = to_ms(datetime.fromisoformat(fields[b"when"].decode()))
    return _Task(
        source,
        id,
        fields[b"key"],
        due_ms,
        fields[b"function"],
        call,
        int(fields.get(b"attempt", b"1")),
        call_payload(call) if len(call) > LARGEST_CALL else None,
    )


async def _scheduled(ledger: Ledger) -> AsyncIterator[list[_Row]]:
    """A scan may show a key twice: the script finds it gone."""
    queue = text_bytes(ledger.keys.key("queue"))
    if await ledger.server.ask(queue, "TYPE", queue) not in (b"zset", "zset"):
        return
    cursor = b"0"
    while True:
        cursor, flat = await ledger.server.ask(queue, "ZSCAN", queue, cursor, "COUNT", _PAGE)
        yield [("queue", b"", key, await _hash(ledger, key)) for key in flat[::2]]
        if cursor == b"0":
            return


async def _hash(ledger: Ledger, key: bytes) -> dict[bytes, bytes]:
    name = ledger.keys.root + key
    if await ledger.server.ask(name, "TYPE", name) not in (b"hash", "hash"):
        return {}
    return _pairs(await ledger.server.ask(name, "HGETALL", name))


async def _entries(ledger: Ledger, source: str) -> AsyncIterator[list[_Row]]:
    name = text_bytes(ledger.keys.key(source))
    start = b"-"
    while True:
        rows = await ledger.server.ask(name, "XRANGE", name, start, "+", "COUNT", _PAGE)
        if not rows:
            return
        start = b"(" + rows[-1][0]
        yield [(source, id, None, _pairs(fields)) for id, fields in rows if fields[0] != _OWN_FIELD]


def _pairs(flat: Sequence[bytes] | dict[bytes, bytes]) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


async def _count_strikes(ledger: Ledger) -> int:
    name = text_bytes(ledger.keys.key("strikes"))
    if await ledger.server.ask(name, "TYPE", name) not in (b"stream", "stream"):
        return 0
    return int(await ledger.server.ask(name, "XLEN", name))
