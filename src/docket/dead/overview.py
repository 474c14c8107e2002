"""All dead letters at a glance: how many there are, and of which kinds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from docket.ledger.letters import BuriedChain, KindRow, LetterCounts
from docket.model.times import from_ms


@dataclass(frozen=True, slots=True)
class Kind:
    """Dead letters of one function that failed with one class of error at one place. If a function
    fails in very many ways, kinds have no place or no error."""

    id: str
    function: str
    error: str
    place: str
    count: int
    size: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class BuriedTask:
    """An automatic task that workers do not start until it is retried (`dead.retry(key=name)`).
    `letter` is the id of its dead letter, or None if that is gone."""

    name: str
    since: datetime
    letter: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Overview:
    """How many dead letters there are, their bytes, how many did not fit and how many have expired
    since the docket exists; their kinds, the most frequent first; and the buried automatic tasks.
    `mark` is the id of the newest letter."""

    letters: int
    size: int
    dropped: int
    expired: int
    mark: int
    kinds: tuple[Kind, ...]
    buried: tuple[BuriedTask, ...] = ()


def as_kind(row: KindRow) -> Kind:
    times = (from_ms(row.first_ms), from_ms(row.last_ms))
    return Kind(row.id, row.function, row.error, row.place, row.count, row.bytes, *times)


def as_overview(counts: LetterCounts, chains: list[BuriedChain]) -> Overview:
    buried = tuple(BuriedTask(chain.name, from_ms(chain.since_ms), chain.id, chain.text) for chain in chains)
    kinds = tuple(as_kind(row) for row in counts.kinds)
    return Overview(counts.letters, counts.bytes, counts.dropped, counts.expired, counts.last_id, kinds, buried)
