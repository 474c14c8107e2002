"""Counts of endings per function and minute: how a settlement carries its count, and how counts
are read (docs/design/statistics.md)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from docket.codec.packing import unpack_row
from docket.model.histograms import BOUNDS, BUCKETS, Histogram
from docket.model.places import PlaceCounts, words_of
from docket.model.states import KINDS_BY_NUMBER, MEASURE_KEYS, NO_MEASURES, EndingKind, Measures
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.schema import locations
from docket.storage.schema.statistics import (
    FUNCTION_FIELD,
    KIND_CELL,
    KINDS,
    MARK,
    MINUTE_MS,
    NO_TIMES,
    OTHER_RUNS,
    SUCCEEDED_RUNS,
    WAITING_TIMES,
)
from docket.storage.schema.statistics import OTHERS as OTHERS_FIELD

from .calls import Area

_MARK, _OTHERS, _FUNCTION = MARK.encode(), OTHERS_FIELD.encode(), FUNCTION_FIELD.encode()
# The name of all functions that have no row of their own.
OTHERS = "(others)"
# One script call stops after this many rows.
_MOST_ROWS = 2_000
_BOUNDS_MS = tuple(bound * 1000 for bound in BOUNDS)


@dataclass(slots=True)
class Row:
    """The counts of one function in one minute or hour, or the sum of several rows."""

    endings: dict[EndingKind, int] = field(default_factory=dict[EndingKind, int])
    waits: dict[int, int] = field(default_factory=dict[int, int])
    succeeded: dict[int, int] = field(default_factory=dict[int, int])
    others: dict[int, int] = field(default_factory=dict[int, int])
    # In the order of `Measures`.
    sums: list[float] = field(default_factory=lambda: list(NO_MEASURES))

    @property
    def measures(self) -> Measures:
        return Measures(*self.sums)

    def add(self, stored: Mapping[int, float]) -> None:
        """Adds a stored row. Numbers that this release does not know are left out."""
        for at, number in stored.items():
            if at in MEASURE_KEYS:
                self.sums[MEASURE_KEYS.index(at)] += number
            elif (kind := KINDS_BY_NUMBER.get(at - KINDS)) is not None:
                self.endings[kind] = self.endings.get(kind, 0) + int(number)
            else:
                for begin, counts in (
                    (OTHER_RUNS, self.others),
                    (SUCCEEDED_RUNS, self.succeeded),
                    (WAITING_TIMES, self.waits),
                ):
                    if begin <= at < begin + BUCKETS:
                        counts[at - begin] = counts.get(at - begin, 0) + int(number)
                        break

    def merge(self, other: Row) -> None:
        """Adds another row."""
        self.sums = [mine + more for mine, more in zip(self.sums, other.sums, strict=True)]
        for mine, more in (
            (self.waits, other.waits),
            (self.succeeded, other.succeeded),
            (self.others, other.others),
        ):
            for at, number in more.items():
                mine[at] = mine.get(at, 0) + number
        for kind, number in other.endings.items():
            self.endings[kind] = self.endings.get(kind, 0) + number

    @property
    def waiting_time(self) -> Histogram:
        return Histogram(self.waits)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of one minute or hour. `number` counts minutes or hours since 1970."""

    number: int
    function: str
    row: Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample(PlaceCounts):
    """The tasks at one moment, and how many endings its minute had so far."""

    unfinished: int
    at_ms: float
    ended: int

    @property
    def minute(self) -> int:
        return int(self.at_ms // MINUTE_MS)


def counts_by_field(unfinished: int, running: int, counted: Mapping[str, int]) -> dict[str, int]:
    """The fields of `PlaceCounts`. `counted` has the tasks of each location but those that are
    ready, by its file; also of locations that only a newer release knows."""
    found = {words_of(locations.PLACES[file]).field: counted[file] for file in locations.COUNTED}
    return found | {"running": running, "ready": max(unfinished - running - sum(counted.values()), 0)}


class Statistics(Area):
    """The statistics of one docket."""

    async def rows(
        self, first: int, last: int, *, by_hours: bool = False, function: str | None = None
    ) -> AsyncIterator[StoredRow]:
        """The rows of these minutes or hours, page by page. An hour may have several rows of one
        function."""
        name = text_bytes(function) if function is not None else False
        while first >= 0:
            terms = (b"h" if by_hours else b"m", first, last, name, _MOST_ROWS)
            _, first, *found = await self._calls.run_script("read_statistics", terms)
            for number, fields in zip(found[::2], found[1::2], strict=True):
                for function, row in read_fields(fields):
                    yield StoredRow(number, function, row)

    async def samples(self, first: int, last: int) -> list[Sample]:
        """The samples of these minutes, the earliest first. There is at most one for each."""
        key = text_bytes(self._calls.keys.stats_samples)
        found: list[bytes] = await self._calls.server.ask(key, "ZRANGE", key, first, last, "BYSCORE")
        return [sample for data in found if (sample := _read_sample(data)) is not None]

    async def fold_minute(self) -> int:
        """Adds one minute that is over to its hour. Returns how many such minutes are left."""
        return await self._calls.run_script("fold_statistics", ())


def cell_of(kind: int, seconds: float, waited_ms: float) -> int:
    """The cell of a run: how it ended, how long it ran, how long its task had waited."""
    return kind << 12 | bisect_right(BOUNDS, seconds) << 6 | bisect_right(_BOUNDS_MS, waited_ms)


def cell_without_times(kind: int) -> int:
    """The cell of a task that ended without a run."""
    return kind << 12 | NO_TIMES


def with_kind(cell: int, kind: int) -> int:
    """These times with another kind."""
    return kind << 12 | cell % KIND_CELL


def read_fields(fields: Sequence[bytes]) -> Iterator[tuple[str, Mapping[int, float]]]:
    """The functions and rows of one hash: its fields and values, one after the other."""
    for stored, data in zip(fields[::2], fields[1::2], strict=True):
        if stored != _MARK and (row := read_row(data)):
            yield _function(stored), row


def _read_sample(data: bytes) -> Sample | None:
    values = data.split(b" ")
    named = {name: value for name, _, value in (item.partition(b"=") for item in values[4:])}
    if len(values) < 4 or not all(value.isdigit() and len(value) < 17 for value in (*values[:4], *named.values())):
        return None
    counted = {bytes_text(name): int(value) for name, value in named.items()}
    if not counted.keys() >= set(locations.COUNTED):
        return None
    at, unfinished, running, ended = (int(value) for value in values[:4])
    return Sample(**counts_by_field(unfinished, running, counted), unfinished=unfinished, at_ms=at, ended=ended)


def _function(stored: bytes) -> str:
    return OTHERS if stored == _OTHERS else bytes_text(stored[len(_FUNCTION) :])


def read_row(data: bytes) -> dict[int, float]:
    """The numbers of a row. Bytes that are not a row count as an empty one."""
    try:
        found: Any = unpack_row(data)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    row = cast("dict[Any, Any]", found)
    return {
        at: number
        for at, number in row.items()
        if isinstance(at, int) and isinstance(number, int | float) and math.isfinite(number) and number > 0
    }
