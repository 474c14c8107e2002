"""The history of finished runs: every failure, and samples of the others
(docs/design/history.md)."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from docket.codec.packing import unpack_from_script
from docket.model.states import FAILURE_KINDS, KINDS_BY_NUMBER, EndingKind
from docket.model.times import from_ms
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.schema.statistics import ENTRY_FIELD

from .calls import Area, ScriptCalls
from .fleet import worker_name

# Entries that one command reads.
PAGE = 500
# The last letter of an id names the stream: entries of both may have the same number.
_FAILURES, _SAMPLES = "f", "s"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that ended, or a task that ended without a run."""

    # Names the entry: `history(before=…)` goes on there.
    id: str
    ending: EndingKind
    ended_at: datetime
    # Longer keys and names are cut to 512 bytes.
    key: str
    function: str
    # None for a task that ended without a run.
    worker: str | None
    attempt: int
    due_at: datetime
    # When the worker claimed the run. None for a task that ended without a run.
    started_at: datetime | None
    # None if the body did not begin.
    run_time: timedelta | None
    # Type and text, shortened. None if the run did not fail, and if texts are not kept.
    error: str | None
    # How many endings this function had earlier in this minute that are not in the history: of
    # failures for a failure, otherwise of the other endings.
    left_out: int

    @property
    def is_failure(self) -> bool:
        """Whether it went wrong by itself. A cancelled run did not."""
        return self.ending in FAILURE_KINDS

    @property
    def waiting_time(self) -> timedelta | None:
        """From the due time of the task to the claim of the run."""
        return None if self.started_at is None else max(self.started_at - self.due_at, timedelta(0))


class _Stream:
    """One of the two streams, read from its end."""

    def __init__(self, calls: ScriptCalls, letter: str, cursor: tuple[int, int, str] | None, at_once: int) -> None:
        self._server = calls.server
        self._at_once = at_once
        self._key = text_bytes(calls.keys.key("history-failures" if letter == _FAILURES else "history-samples"))
        self._letter = letter
        # At the same number, samples come after failures in this order.
        self._end = "+" if cursor is None else _end(cursor, letter)
        # The newest is the last.
        self.page: list[tuple[tuple[int, int], FinishedRun | None]] = []

    @property
    def place(self) -> tuple[int, int, str]:
        return (*self.page[-1][0], self._letter)

    async def fill(self) -> None:
        """Reads the next page, if there is one."""
        found = await self._server.ask(self._key, "XREVRANGE", self._key, self._end, "-", "COUNT", self._at_once)
        for id, fields in reversed(found):
            ms, _, number = id.decode().partition("-")
            self.page.append(((int(ms), int(number)), _read_entry(f"{id.decode()}{self._letter}", fields)))
        if found:
            self._end = f"({found[-1][0].decode()}"


class History(Area):
    """The finished runs of one docket."""

    async def newest(
        self, before: str | None = None, *, failures: bool = False, at_once: int = PAGE
    ) -> AsyncGenerator[FinishedRun]:
        """The finished runs, newest first, page by page: those before an id, or all. With
        `failures` only these. `at_once` is the number of entries that one command reads of each
        stream. Raises ValueError if the id is not one of the history."""
        cursor = None if before is None else _read_id(before)
        streams = [
            _Stream(self._calls, letter, cursor, at_once) for letter in (_FAILURES, _SAMPLES)[: 1 if failures else 2]
        ]
        for stream in streams:
            await stream.fill()
        while any(stream.page for stream in streams):
            newest = max((stream for stream in streams if stream.page), key=lambda stream: stream.place)
            run = newest.page.pop()[1]
            if not newest.page:
                await newest.fill()
            if run is not None:
                yield run

    async def trim(self) -> int:
        """Deletes the entries that are too old. Returns how many."""
        return await self._calls.run_script("trim_history", (self._calls.keep_ms,))


def _end(cursor: tuple[int, int, str], letter: str) -> str:
    ms, number, of = cursor
    is_included = letter < of
    return f"{'' if is_included else '('}{ms}-{number}"


def _read_id(id: str) -> tuple[int, int, str]:
    ms, _, rest = id.partition("-")
    number, letter = rest[:-1], rest[-1:]
    if not (ms.isdecimal() and number.isdecimal() and letter in (_FAILURES, _SAMPLES)):
        raise ValueError(f"before={id!r} is not the id of a finished run, as `FinishedRun.id` has it")
    return int(ms), int(number), letter


def _read_entry(id: str, fields: list[bytes]) -> FinishedRun | None:
    """None for an entry that somebody else has written."""
    try:
        stored: Any = unpack_from_script(dict(zip(fields[::2], fields[1::2], strict=True))[ENTRY_FIELD.encode()])
        _, kind, ended, key, function, worker, attempt, _epoch, due, started, seconds, error, left_out = stored[:13]
        if not math.isfinite(seconds):
            return None
        return FinishedRun(
            id,
            KINDS_BY_NUMBER[kind],
            from_ms(ended),
            bytes_text(key),
            bytes_text(function),
            worker_name(bytes_text(worker)) or None,
            int(attempt),
            from_ms(due),
            from_ms(started) if started else None,
            timedelta(seconds=seconds) if seconds >= 0 else None,
            bytes_text(error) or None,
            max(int(left_out), 0),
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        return None
