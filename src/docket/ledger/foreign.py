"""Tasks that pydocket has stored under a docket's key names (docs/design/foreign-tasks.md)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from docket.codec import Payloads
from docket.errors import TRANSIENT
from docket.model.times import to_ms
from docket.storage.keys import bytes_text, text_bytes

from .calls import Area, ScriptCalls
from .deliveries import entry_key
from .payloads import LARGEST_CALL, Payload, PayloadStore, call_payload

logger: logging.Logger = logging.getLogger("docket.foreign")
_PAGE = 200
_FIELDS = (b"key", b"when", b"function", b"args", b"kwargs", b"attempt", b"generation")
_TRIES = 3
_TAKEN, _ALREADY_THERE, _PAYLOAD_MISSING = 1, 2, 3
_Row = tuple[str, bytes, bytes | None, dict[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ForeignCount:
    """The number of tasks of another program: scheduled,
    on the stream, and set aside by docket's workers."""

    scheduled: int
    entries: int
    set_aside: int

    @property
    def total(self) -> int:
        return self.scheduled + self.entries + self.set_aside


@dataclass(slots=True)
class Imported:
    """The result of an import. `unreadable` tasks stay where they are, and so
    do the strike instructions, which `strikes` counts. `already_there` has
    the keys for which docket has an unfinished task of its own; the foreign
    tasks of these keys are kept until docket's own tasks have ended."""

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


class ForeignTasks(Area):
    """The tasks that pydocket has stored under the name of this docket."""

    def __init__(self, calls: ScriptCalls, payloads: PayloadStore) -> None:
        super().__init__(calls)
        self._payloads = payloads

    async def warn(self, name: str) -> None:
        """Logs a warning about tasks that another program left under this name. Does nothing if the
        server cannot be reached."""
        if not self._calls.server.is_reached:
            return
        try:
            found = await self.count()
        except TRANSIENT:
            return
        if found.total:
            logger.warning(
                "docket %r: pydocket has stored %d tasks under this name (%d scheduled, %d queued or running, "
                "%d set aside); workers do not run them. `docket import --docket %s` imports them",
                name, found.total, found.scheduled, found.entries, found.set_aside, name,
            )  # fmt: skip

    async def count(self) -> ForeignCount:
        return ForeignCount(*await self._calls.run_script("count_foreign", ()))

    async def take_over(self, payloads: Payloads) -> Imported:
        """Moves every readable task into this docket, each in one step. If the import is
        interrupted, the next import continues with the remaining tasks."""
        imported = Imported()
        # A task that is set aside during the import is found a second time, so count each key once.
        already_there: dict[str, None] = {}
        async for page in self._pages(payloads, imported):
            if not page:
                continue
            for task in page:
                if task.payload is not None:
                    await self._payloads.store(task.payload)
            answers: list[int] = await self._calls.run_script("import_tasks", [task.item() for task in page])
            for task, answer in zip(page, answers, strict=True):
                if answer == _PAYLOAD_MISSING:
                    answer = await self._adopt_again(task)
                if answer == _ALREADY_THERE:
                    already_there[bytes_text(task.key)] = None
                elif answer == _TAKEN and task.source == "queue":
                    imported.scheduled += 1
                elif answer == _TAKEN:
                    imported.queued += 1
        imported.already_there = list(already_there)
        imported.strikes = await self._count_strikes()
        return imported

    async def _adopt_again(self, task: _Task) -> int:
        answer = _PAYLOAD_MISSING
        for _ in range(_TRIES):
            if answer == _PAYLOAD_MISSING and task.payload is not None:
                await self._payloads.store(task.payload)
                (answer,) = await self._calls.run_script("import_tasks", [task.item()])
        return answer

    async def _pages(self, payloads: Payloads, imported: Imported) -> AsyncIterator[list[_Task]]:
        """All foreign tasks, page by page. The caller
        imports a page before the next page is read."""
        async for rows in self._scheduled():
            yield _read(rows, payloads, imported)
        for source in ("stream", "foreign"):
            async for rows in self._entries(source):
                yield _read(rows, payloads, imported)

    async def _scheduled(self) -> AsyncIterator[list[_Row]]:
        """The scheduled tasks. A scan may return a key twice;
        the script ignores a task that it has already moved."""
        queue = text_bytes(self._calls.keys.key("queue"))
        if await self._calls.server.ask(queue, "TYPE", queue) not in (b"zset", "zset"):
            return
        cursor = b"0"
        while True:
            cursor, flat = await self._calls.server.ask(queue, "ZSCAN", queue, cursor, "COUNT", _PAGE)
            yield [("queue", b"", key, await self._hash(key)) for key in flat[::2]]
            if cursor == b"0":
                return

    async def _hash(self, key: bytes) -> dict[bytes, bytes]:
        name = self._calls.keys.root + key
        if await self._calls.server.ask(name, "TYPE", name) not in (b"hash", "hash"):
            return {}
        return _pairs(await self._calls.server.ask(name, "HGETALL", name))

    async def _entries(self, source: str) -> AsyncIterator[list[_Row]]:
        name = text_bytes(self._calls.keys.key(source))
        start = b"-"
        while True:
            rows = await self._calls.server.ask(name, "XRANGE", name, start, "+", "COUNT", _PAGE)
            if not rows:
                return
            start = b"(" + rows[-1][0]
            yield [(source, id, None, _pairs(fields)) for id, fields in rows if entry_key(fields) is None]

    async def _count_strikes(self) -> int:
        name = text_bytes(self._calls.keys.key("strikes"))
        if await self._calls.server.ask(name, "TYPE", name) not in (b"stream", "stream"):
            return 0
        return int(await self._calls.server.ask(name, "XLEN", name))


def _read(rows: Iterable[_Row], payloads: Payloads, imported: Imported) -> list[_Task]:
    tasks: list[_Task] = []
    for source, id, key, fields in rows:
        try:
            tasks.append(_task(source, id, fields, payloads))
        except (KeyError, ValueError):
            imported.unreadable.append(bytes_text(key or fields.get(_FIELDS[0], id)))
    return tasks


def _task(source: str, id: bytes, fields: dict[bytes, bytes], payloads: Payloads) -> _Task:
    """Raises KeyError or ValueError if the fields are not a task in pydocket's format."""
    trace = {bytes_text(name): bytes_text(value) for name, value in fields.items() if name not in _FIELDS}
    key, name = bytes_text(fields[b"key"]), bytes_text(fields[b"function"])
    call = payloads.seal_pickled_call(key, name, fields[b"args"], fields[b"kwargs"], trace)
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


def _pairs(flat: Sequence[bytes] | dict[bytes, bytes]) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
