"""Dead letters: their contents, and the scripts that count, list, retry, discard, edit and trim
them (docs/design/dead-letters.md)."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from docket.codec.packing import pack, unpack, unpack_from_script
from docket.errors import Undecodable
from docket.model.retention import LETTERS, SIZE, Keep
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.letters import LetterRecord, read_letter
from docket.storage.records import FinishedRecord, TaskRecord
from docket.storage.schema.locations import IN_STREAM
from docket.storage.schema.records import (
    BURIED_LETTER,
    FAILED_LETTER,
    NOT_RUN_LETTER,
    REFUSED_LETTER,
    SEALED_TRACEBACK,
    UNDECODABLE_LETTER,
    LetterFields,
)

from .calls import Area
from .endings import Ending
from .payloads import Payload

_LONGEST_NAME = 200
# Docket's own errors, which scripts write.
WORKER_LOST = "docket.errors.WorkerLost"
NOT_REGISTERED = "docket.errors.TaskNotRegistered"
# The most letters that one script call reads, and changes.
PAGE = 500
STEP = 50
# Kinds whose letters one script call merges.
MOST_KINDS = 20
_LAST = 2.0**53


class DeathCause(enum.IntEnum):
    """Why a task became a dead letter."""

    FAILED = FAILED_LETTER
    BURIED = BURIED_LETTER
    UNDECODABLE = UNDECODABLE_LETTER
    REFUSED = REFUSED_LETTER
    # A retried task that a strike or a limit kept from running.
    NOT_RUN = NOT_RUN_LETTER


@dataclass(frozen=True, slots=True)
class LetterNote:
    """How to keep a task that has failed for good, and what its ending does not say. With an age of
    0 only the chain of an automatic task is noted."""

    reason: DeathCause
    age_ms: int
    most: int = LETTERS
    most_bytes: int = SIZE
    error: str = ""
    place: str = ""
    # Of `Logged` arguments; see `fingerprint_lines`.
    arguments: bytes = b""
    text: str = ""
    traceback: bytes = b""
    is_sealed: bool = False
    rest: bytes = b""

    def row(self) -> LetterFields:
        return LetterFields(
            reason=int(self.reason),
            age=self.age_ms,
            most=self.most,
            most_bytes=self.most_bytes,
            flags=SEALED_TRACEBACK if self.is_sealed else 0,
            error=text_bytes(self.error[:_LONGEST_NAME]),
            place=text_bytes(self.place[:_LONGEST_NAME]),
            arguments=self.arguments,
            text=text_bytes(self.text),
            traceback=self.traceback,
            rest=self.rest,
        )

    @property
    def weight(self) -> int:
        """The approximate size in a script's arguments, in bytes."""
        return (
            60
            + len(self.error)
            + len(self.place)
            + len(self.arguments)
            + len(self.text)
            + len(self.traceback)
            + len(self.rest)
        )


@dataclass(frozen=True, slots=True)
class RunNote:
    """Where and by what the last run of a dead letter was made."""

    worker: str | None = None
    docket_version: str | None = None
    python_version: str | None = None
    deploy: str | None = None
    trace: dict[str, str] | None = None
    duration: float | None = None

    def pack(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return pack({name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True, slots=True)
class KindRow:
    """The letters of one function, error class and place. The texts are empty if there are so many
    kinds that letters share a coarser one."""

    id: str
    function: str
    error: str
    place: str
    count: int
    bytes: int
    first_ms: float
    last_ms: float


@dataclass(slots=True)
class LetterCounts:
    server_ms: float
    letters: int
    bytes: int
    dropped: int
    expired: int
    last_id: int
    kinds: list[KindRow]


@dataclass(frozen=True, slots=True)
class LetterQuery:
    """Selects letters. Fields that are not given match every letter."""

    kinds: tuple[str, ...] | None = None
    function: str | None = None
    error: str | None = None
    text: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    from_ms: float | None = None
    before_ms: float | None = None
    argument: bytes | None = None
    # The last letter that counts.
    mark: int | None = None
    # Whether the kinds alone decide about function and error.
    kinds_decide: bool = False

    @property
    def filter(self) -> list[Any] | bool:
        """In the format of the script. False if nothing but kinds and ids has to be compared."""
        function, error = (None, None) if self.kinds_decide else (self.function, self.error)
        texts = (function, error, self.text, self.key, self.key_prefix)
        fields: list[Any] = [
            *(False if text is None else text_bytes(text) for text in texts),
            False if self.from_ms is None else self.from_ms,
            False if self.before_ms is None else self.before_ms,
            False if self.argument is None else self.argument,
        ]
        return False if all(value is False for value in fields) else fields


class Retried(enum.IntEnum):
    """The result for a letter that was to be retried."""

    GONE = 0
    RETRIED = 1
    KEY_TAKEN = 2
    PAYLOAD_GONE = 3
    DAMAGED = 4


class Edited(enum.IntEnum):
    """The result of an edit."""

    GONE = 0
    DONE = 1
    CHANGED = 2
    PAYLOAD_MISSING = 3
    DAMAGED = 4


@dataclass(slots=True)
class Trimmed:
    """`ended`: letters whose time is over. `dropped`: letters that did not fit, since the last
    answer that said so."""

    ended: int
    dropped: int
    letters: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class BuriedChain:
    """An automatic task that workers do not start: it took them down, or could not be read. `id` is
    that of its letter, or None if that is gone."""

    name: str
    since_ms: float
    id: int | None
    text: str


@dataclass(slots=True)
class LetterRow:
    id: int
    data: bytes = field(default=b"", repr=False)


class Letters(Area):
    """The dead letters of one docket."""

    async def count(self) -> LetterCounts:
        """The number of letters, and all kinds, the most frequent first."""
        now, letters, size, dropped, expired, last, *kinds = await self._calls.run_script("count_letters", ())
        rows = [_kind(kinds[i], kinds[i + 1]) for i in range(0, len(kinds), 2)]
        rows.sort(key=lambda kind: (-kind.count, -kind.last_ms))
        return LetterCounts(now, letters, size, dropped, expired, last, rows)

    async def get(self, which: int | str) -> LetterRow | None:
        """The letter of an id, or the newest letter of a key."""
        is_id = isinstance(which, int)
        reply = await self._calls.run_script(
            "get_letter", (_id(which) if is_id else False, b"" if is_id else text_bytes(str(which)))
        )
        return LetterRow(int(reply[0]), reply[1]) if reply else None

    async def pages(
        self, query: LetterQuery, *, newest_first: bool, whole: bool, size: int = PAGE
    ) -> AsyncIterator[list[LetterRow]]:
        """The matching letters in the order of their ids, page by page. A page may be empty."""
        after: int | None = None
        while True:
            rows, after = await self.page(query, after, size, newest_first=newest_first, whole=whole)
            yield rows
            if after is None:
                return

    async def page(
        self,
        query: LetterQuery,
        after: int | None,
        size: int = PAGE,
        *,
        newest_first: bool = True,
        whole: bool = True,
    ) -> tuple[list[LetterRow], int | None]:
        """Some matching letters after an id, and the id after which to go on, or None at the end.
        With a filter there may be more than `size`."""
        if query.kinds is not None and not query.kinds:
            return [], None
        if query.kinds is not None and len(query.kinds) > MOST_KINDS:
            # So many kinds are nearly everything.
            query = dataclasses.replace(query, kinds=None, kinds_decide=False)
        greatest = _LAST if query.mark is None else query.mark
        kinds = list(query.kinds) if query.kinds is not None else False
        # A filter may match few of the letters that are read.
        most = min(size, PAGE) if query.filter is False else PAGE
        begin = _id(after) if after is not None else False
        following, *found = await self._calls.run_script(
            "list_letters", (kinds, newest_first, begin, 0, greatest, most, query.filter, whole)
        )
        step = 2 if whole else 1
        rows = [LetterRow(int(found[i]), found[i + 1] if whole else b"") for i in range(0, len(found), step)]
        return rows, int(following) if following else None

    async def retry(self, batch: str, step: int, items: Sequence[tuple[int, float]]) -> list[Retried]:
        """Makes tasks of letters: ids, each with the due time in ms, or 0 for now. A step that was
        taken before changes nothing and has the same answer."""
        rows = [(_id(id), due) for id, due in items]
        return [Retried(code) for code in await self._calls.run_script("retry_letters", (batch.encode(), step, rows))]

    async def discard(self, batch: str, step: int, ids: Sequence[int]) -> int:
        """The number of letters that existed."""
        return sum(await self._calls.run_script("discard_letters", (batch.encode(), step, [_id(id) for id in ids])))

    async def edit(self, id: int, edits: int, call: bytes, payload: Payload | None, arguments: bytes) -> Edited:
        """Replaces the call of a letter, if it was edited `edits`
        times. `payload` has the call if it is stored apart."""
        reference = call if payload is None else payload.reference
        return Edited(
            await self._calls.run_script("edit_letter", (_id(id), edits, reference, payload is not None, arguments))
        )

    def trim(self, client: Any) -> Trimmed:
        """Deletes letters whose time is over, and those that are too many. For the thread that
        renews the lease: `client` is its own blocking client."""
        keep = self._calls.keep
        terms = (keep.letters or math.inf, keep.size or math.inf, keep.age_ms)
        ended, dropped, letters, more = self._calls.run_script_blocking(client, "trim_letters", terms)
        return Trimmed(ended, dropped, letters, bool(more))

    async def buried_chains(self) -> list[BuriedChain]:
        key = text_bytes(self._calls.keys.buried_chains)
        found: dict[bytes, bytes] = {}
        cursor = b"0"
        while True:
            cursor, page = await self._calls.server.ask(key, "HSCAN", key, cursor, "COUNT", PAGE)
            found |= dict(zip(page[::2], page[1::2], strict=True))
            if cursor == b"0":
                return [read_buried_chain(bytes_text(name), note) for name, note in sorted(found.items())]

    async def buried_record(self, name: str) -> FinishedRecord | None:
        """The end of a buried automatic task, whose finished
        record may have expired; None if the task is not buried."""
        key = text_bytes(self._calls.keys.buried_chains)
        note: bytes | None = await self._calls.server.ask(key, "HGET", key, text_bytes(name))
        if note is None:
            return None
        chain = read_buried_chain(name, note)
        row = await self.get(chain.id) if chain.id is not None else None
        if row is not None:
            with contextlib.suppress(Undecodable):
                return finished_record(read_letter(row.data))
        task = TaskRecord(IN_STREAM, 1, 0, 1, chain.since_ms, 0.0, 0, name, b"")
        tail = Ending(None, chain.text).pack()
        return FinishedRecord(ExecutionState.FAILED, 0, 0.0, chain.since_ms, task, b"", tail)

    async def revive_chains(self, names: Sequence[str]) -> int:
        """Lets workers start these automatic tasks again. Returns how many were buried."""
        return await self._calls.run_script("revive_chains", [text_bytes(name) for name in names])


def script_note(keep: Keep, reason: DeathCause, error: str, text: str) -> LetterNote:
    """The note for tasks that a script fails without a run."""
    return LetterNote(reason, keep.age_ms, keep.letters, keep.size, error, text=text)


def fingerprint_lines(fingerprints: dict[str, str]) -> bytes:
    """Fingerprints of arguments by the names of their parameters. Each line has a newline before
    and after it, so that a search for a line cannot find a part of another."""
    if not fingerprints:
        return b""
    lines = b"".join(text_bytes(f"{name}={mark}") + b"\n" for name, mark in fingerprints.items())
    return b"\n" + lines if len(lines) < 4_000 else b""


def fingerprint_line(name: str, mark: str) -> bytes:
    return b"\n" + text_bytes(f"{name}={mark}") + b"\n"


def read_run_note(data: bytes) -> RunNote:
    """Fields that are missing, damaged or of a newer release are left out."""
    try:
        fields: Any = unpack(data) if data else {}
        return RunNote(**{name: fields[name] for name in RunNote.__slots__ if name in fields})
    except (ValueError, TypeError, AttributeError):
        return RunNote()


def _kind(id: bytes, data: bytes) -> KindRow:
    try:
        function, error, place, count, size, first, last = unpack_from_script(data)
        texts = (bytes_text(function), bytes_text(error), bytes_text(place))
        return KindRow(bytes_text(id), *texts, int(count), int(size), float(first), float(last))
    except (ValueError, TypeError, AttributeError):
        return KindRow(bytes_text(id), "", "", "", 0, 0, 0.0, 0.0)


def read_buried_chain(name: str, note: bytes) -> BuriedChain:
    since, _, rest = bytes_text(note).partition(" ")
    id, _, text = rest.partition(" ")
    return BuriedChain(name, float(since) if since.isdecimal() else 0.0, int(id) if id.isdecimal() else None, text)


def finished_record(letter: LetterRecord) -> FinishedRecord:
    """The finished record of a letter, without its exception."""
    tail = Ending(read_run_note(letter.rest).worker, letter.text).pack()
    state = ExecutionState.FAILED
    return FinishedRecord(state, letter.epoch, letter.started_ms, letter.died_ms, letter.task, b"", tail)


def _id(number: int) -> bytes:
    return b"%016d" % number
