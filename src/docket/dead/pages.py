"""Pages of dead letters, with a cursor, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from docket.ledger import Ledger
from docket.ledger.letters import LetterQuery, LetterRow

from .letter import Letter

MOST_LETTERS = 500
# A page whose filter matches few letters ends after this time, with the letters so far.
PATIENCE = timedelta(milliseconds=60)


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Letters, the newest first, and the cursor of the next page; None at the end.

    A page may have few letters, or none, and a cursor: the filter matches few of the letters that
    were read in the time of one page. `total` is the number of all letters.
    """

    letters: tuple[Letter, ...]
    cursor: str | None
    total: int


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
