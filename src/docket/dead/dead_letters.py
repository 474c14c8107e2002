"""The dead letters of a docket: count, find, retry, discard and edit them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from typing import Any, Unpack

from docket.errors import LetterNotFound
from docket.execution.context import DocketContext
from docket.instrumentation.tracing import request_span
from docket.ledger import Ledger
from docket.ledger.audit import in_words
from docket.ledger.letters import (
    LetterCounts,
    LetterQuery,
    LetterRow,
)
from docket.model.times import check_durations
from docket.storage.letters import read_letter

from .batches import LetterBatch, Progress, Report, answered
from .edits import edit
from .filters import LetterFilter, Selection, check_not_empty, select
from .letter import Kind, Letter, LetterPage, Overview, as_kind, as_overview, read_letter_row

_FIRST_PAGE = 50
MOST_LETTERS = 500
# A page whose filter matches few letters ends after this time, with the letters so far.
PATIENCE = timedelta(milliseconds=60)


class DeadLetters:
    """The tasks of a docket that failed for good: `docket.dead`.

    Filters are keyword arguments; `LetterFilter` has all of them. A filter that is not valid raises
    TypeError or ValueError, and nothing is changed.
    """

    def __init__(self, docket: DocketContext) -> None:
        self._docket = docket

    # Looking

    async def overview(self) -> Overview:
        """How many letters there are, of which kinds, and the buried automatic tasks."""
        ledger = self._docket.ledger
        return as_overview(await ledger.letters.count(), await ledger.letters.buried_chains())

    async def kinds(self, *, function: Any = None, error: str | type[BaseException] | None = None) -> list[Kind]:
        """The kinds of letters, the most frequent first."""
        given = {"function": function, "error": error}
        selection = self._select({name: value for name, value in given.items() if value is not None})
        return [as_kind(row) for row in (await self._counts()).kinds if selection.may_match(row)]

    async def count(self, **filter: Unpack[LetterFilter]) -> int:
        """The number of letters that match; of all letters without a filter."""
        selection = self._select(filter)
        if selection.id is not None:
            return len([row async for row in self._rows(selection)])
        counts = await self._counts()
        if selection.is_empty:
            return counts.letters
        chosen = [kind for kind in counts.kinds if selection.may_match(kind)]
        if selection.needs_kinds_only and not any(selection.is_coarse(kind) for kind in chosen):
            return sum(kind.count for kind in chosen)
        return len(await self._ids(selection, counts, None))

    async def find(self, *, limit: int | None = None, **filter: Unpack[LetterFilter]) -> AsyncGenerator[Letter]:
        """The letters that match, the newest first: at most `limit`, or all of them. They are read
        page by page, and nothing is decoded."""
        found = 0
        selection = self._select(filter)
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit}: it must be at least 1")
        async for row in self._rows(selection, size=min(limit or _FIRST_PAGE, _FIRST_PAGE)):
            yield read_letter_row(self._docket, row)
            found += 1
            if found == limit:
                return

    async def page(
        self, *, cursor: str | None = None, size: int = _FIRST_PAGE, **filter: Unpack[LetterFilter]
    ) -> LetterPage:
        """Some of the letters that match, the newest first, and the cursor of the next page. It
        answers in bounded time, however many letters there are. Raises ValueError for a cursor that
        is not one."""
        if not 1 <= size <= MOST_LETTERS:
            raise ValueError(f"size={size}: it must be from 1 to {MOST_LETTERS}")
        selection, after = self._select(filter), read_cursor(cursor)
        counts = await self._counts()
        if selection.id is not None:
            rows, following = [row async for row in self._rows(selection)], None
        else:
            query = selection.with_kinds(counts.kinds, None)
            rows, following = await find_rows(self._docket.ledger, query, after, size)
        return as_page(rows, following, counts.letters, lambda row: read_letter_row(self._docket, row))

    async def get(self, which: str | int) -> Letter | None:
        """The letter of an id, or the newest letter of a key, or None. Its arguments are fetched,
        and decoded when they are first used."""
        row = await self._docket.ledger.letters.get(which)
        if row is None:
            return None
        letter = read_letter_row(self._docket, row)
        if letter.execution is not None:
            await letter.execution.fetch_call()
        return letter

    async def mark(self) -> int:
        """The id of the newest letter. A batch with this mark concerns no letters that come
        later."""
        return (await self._counts()).last_id

    # Changing

    async def retry(
        self,
        *,
        over: timedelta | None = None,
        most: int | None = None,
        mark: int | None = None,
        everything: bool = False,
        progress: Progress | None = None,
        **filter: Unpack[LetterFilter],
    ) -> Report:
        """Makes tasks of the letters that match, the oldest first, at most `most`. Each task starts
        with attempt 1; if it fails again, its letter says so (`deaths`).

        `over` spreads their due times evenly over that time. A letter whose key has an unfinished
        task is skipped. The batch concerns letters up to the mark: the newest one when it began, or
        `mark`. If it is interrupted, every letter is either a letter or a task, and the same call
        finishes it. Raises EmptyFilter without a filter and without `everything=True`.
        """
        if over is not None:
            check_durations("retry", over=over)
        selection = self._for_batch("retry", filter, everything, most)
        async with self._docket.ledger.audit.change("dead.retry", in_words(filter)) as entry:
            with request_span(self._docket, "dead.retry"):
                batch, report = await self._batch(selection, most, mark, progress)
                await batch.retry(report, over)
                await self._revive(selection, report, is_empty=not batch.ids, everything=everything)
            entry.count = report.retried
        return report

    async def _revive(self, selection: Selection, report: Report, *, is_empty: bool, everything: bool) -> None:
        """The letter of a buried automatic task may be gone. Its name is all that it needs."""
        ledger, names = self._docket.ledger, list[str]()
        if selection.query.key is not None and is_empty:
            names = [selection.query.key]
        elif everything:
            names = [chain.name for chain in await answered(lambda: ledger.letters.buried_chains()) if chain.id is None]
        if names:
            report.chains = await answered(lambda: ledger.letters.revive_chains(names))

    async def discard(
        self,
        *,
        most: int | None = None,
        mark: int | None = None,
        everything: bool = False,
        progress: Progress | None = None,
        **filter: Unpack[LetterFilter],
    ) -> Report:
        """Deletes the letters that match, the oldest first, at most `most`. Raises EmptyFilter
        without a filter and without `everything=True`."""
        selection = self._for_batch("discard", filter, everything, most)
        async with self._docket.ledger.audit.change("dead.discard", in_words(filter)) as entry:
            with request_span(self._docket, "dead.discard"):
                batch, report = await self._batch(selection, most, mark, progress)
                await batch.discard(report)
            entry.count = report.discarded
        return report

    async def edit(self, which: str | int, /, **arguments: Any) -> Letter:
        """Changes arguments of a letter, by the names of their parameters, and returns the letter.
        It stays a letter until it is retried.

        The function has to be registered here. Raises TypeError for a parameter that it does not
        have, LetterNotFound, LetterChanged if somebody else edits it at the same time, and
        Undecodable if its arguments cannot be read.
        """
        row = await self._docket.ledger.letters.get(which)
        if row is None:
            raise LetterNotFound(f"there is no dead letter {which!r}")
        if not arguments:
            raise TypeError("edit() needs at least one argument to change")
        async with self._docket.ledger.audit.change("dead.edit", f"{which}: {', '.join(arguments)}"):
            await edit(self._docket, row, arguments)
        changed = await self.get(row.id)
        if changed is None:
            raise LetterNotFound(f"dead letter {row.id} was edited, and then retried, discarded or dropped")
        return changed

    # Selecting

    def _select(self, given: LetterFilter | dict[str, Any]) -> Selection:
        return select(dict(given), encrypts=self._docket.payloads.encrypts)

    def _for_batch(self, what: str, given: LetterFilter, everything: bool, most: int | None) -> Selection:
        selection = self._select(given)
        check_not_empty(selection, what, everything)
        if most is not None and most < 1:
            raise ValueError(f"most={most}: it must be at least 1")
        return selection

    async def _counts(self) -> LetterCounts:
        return await self._docket.ledger.letters.count()

    async def _batch(
        self, selection: Selection, most: int | None, mark: int | None, progress: Progress | None
    ) -> tuple[LetterBatch, Report]:
        counts = await answered(self._counts)
        report = Report(counts.last_id if mark is None else mark)
        ids = await answered(lambda: self._ids(selection, counts, report.mark))
        report.matched = len(ids)
        if most is not None:
            ids, report.left = ids[:most], max(len(ids) - most, 0)
        return LetterBatch(self._docket.ledger, ids, counts.server_ms, progress), report

    async def _ids(self, selection: Selection, counts: LetterCounts, mark: int | None) -> Sequence[int]:
        if selection.id is not None:
            return [row.id async for row in self._rows(selection)]
        query = selection.with_kinds(counts.kinds, mark)
        pages = self._docket.ledger.letters.pages(query, newest_first=False, whole=False)
        return [row.id async for page in pages for row in page]

    async def _rows(self, selection: Selection, size: int = _FIRST_PAGE) -> AsyncGenerator[LetterRow]:
        ledger = self._docket.ledger
        if selection.id is not None:
            row = await ledger.letters.get(selection.id)
            if row is not None and _matches(row, selection):
                yield row
            return
        kinds = (await self._counts()).kinds if selection.function or selection.error or selection.kind else []
        query = selection.with_kinds(kinds, None)
        async for page in ledger.letters.pages(query, newest_first=True, whole=True, size=size):
            for row in page:
                yield row


def _matches(row: LetterRow, selection: Selection) -> bool:
    """An id may come with the key that the caller expects; other filters do not go with it."""
    others = selection.query
    if others.key is None:
        return True
    return read_letter(row.data).key == others.key


def read_cursor(text: str | None) -> int | None:
    """The id after which a page begins. Raises ValueError for a text that is not a cursor."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise ValueError(f"{text!r} is not a cursor: use the one of the page before")
    return int(text)


async def find_rows(
    ledger: Ledger, query: LetterQuery, after: int | None, size: int, patience: timedelta = PATIENCE
) -> tuple[list[LetterRow], int | None]:
    """At most `size` letters after that id, and the id after which the next page begins."""
    found: list[LetterRow] = []
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        rows, following = await ledger.letters.page(query, after, size - len(found))
        left = size - len(found)
        found += rows[:left]
        if len(rows) > left or (len(found) == size and following is not None):
            return found, found[-1].id
        if following is None or time.monotonic() > deadline:
            return found, following
        after = following


def as_page(
    rows: list[LetterRow], following: int | None, total: int, read: Callable[[LetterRow], Letter]
) -> LetterPage:
    return LetterPage(tuple(read(row) for row in rows), None if following is None else str(following), total)
