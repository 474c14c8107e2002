"""The dead letters of a docket, for code without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Unpack

from docket.dead import Kind, Letter, LetterFilter, Overview, Report

from .producer import Producer


class DeadLetters:
    """The tasks of a docket that failed for good: `docket.dead`. The methods take the filters, and
    raise the errors, of the async docket."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def overview(self) -> Overview:
        """How many letters there are, of which kinds, and the buried automatic tasks."""
        return self._producer.run(lambda docket: docket.dead.overview())

    def kinds(self, *, function: Any = None, error: str | type[BaseException] | None = None) -> list[Kind]:
        """The kinds of letters, the most frequent first."""
        return self._producer.run(lambda docket: docket.dead.kinds(function=function, error=error))

    def count(self, **filter: Unpack[LetterFilter]) -> int:
        """The number of letters that match; of all letters without a filter."""
        return self._producer.run(lambda docket: docket.dead.count(**filter))

    def find(self, *, limit: int | None = None, **filter: Unpack[LetterFilter]) -> list[Letter]:
        """The letters that match, the newest first: at most `limit`, or all of them."""

        async def read(docket: Any) -> list[Letter]:
            return [letter async for letter in docket.dead.find(limit=limit, **filter)]

        return self._producer.run(read)

    def get(self, which: str | int) -> Letter | None:
        """The letter of an id, or the newest letter of a key, or None."""
        return self._producer.run(lambda docket: docket.dead.get(which))

    def mark(self) -> int:
        """The id of the newest letter."""
        return self._producer.run(lambda docket: docket.dead.mark())

    def retry(
        self,
        *,
        over: timedelta | None = None,
        most: int | None = None,
        mark: int | None = None,
        everything: bool = False,
        progress: Callable[[int, int], object] | None = None,
        **filter: Unpack[LetterFilter],
    ) -> Report:
        """Makes tasks of the letters that match, the oldest first, at most `most`."""
        return self._producer.run(
            lambda docket: docket.dead.retry(
                over=over, most=most, mark=mark, everything=everything, progress=progress, **filter
            )
        )

    def discard(
        self,
        *,
        most: int | None = None,
        mark: int | None = None,
        everything: bool = False,
        progress: Callable[[int, int], object] | None = None,
        **filter: Unpack[LetterFilter],
    ) -> Report:
        """Deletes the letters that match, the oldest first, at most `most`."""
        return self._producer.run(
            lambda docket: docket.dead.discard(most=most, mark=mark, everything=everything, progress=progress, **filter)
        )

    def edit(self, which: str | int, /, **arguments: Any) -> Letter:
        """Changes arguments of a letter, by the names of their parameters, and returns the
        letter."""
        return self._producer.run(lambda docket: docket.dead.edit(which, **arguments))
