"""Retries and discards many letters, in small steps that may be repeated
(docs/design/dead-letters.md), and reports about them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from docket._aio import Backoff
from docket.errors import ServerUnreachable
from docket.ledger import Ledger
from docket.ledger.letters import STEP, Retried
from docket.model.times import duration_ms

T = TypeVar("T")

# A step whose answer was lost is repeated this often, with growing pauses.
_TRIES = 8
Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class LetterBatch:
    """The letters that a batch concerns, the oldest first. `start_ms` is the server's time when it
    began; `progress` is called with the number of letters so far and of all."""

    ledger: Ledger
    ids: Sequence[int]
    start_ms: float
    progress: Progress | None = None

    async def retry(self, report: Report, over: timedelta | None) -> None:
        ms = 0 if over is None else duration_ms(over)
        count, name = len(self.ids), secrets.token_hex(8)

        def due(position: int) -> float:
            return self.start_ms + ms * position / count if ms else 0.0

        for number, at in enumerate(range(0, count, STEP)):
            items = [(id, due(at + i)) for i, id in enumerate(self.ids[at : at + STEP])]

            def step(number: int = number, items: list[tuple[int, float]] = items) -> Awaitable[list[Retried]]:
                return self.ledger.letters.retry(name, number, items)

            for (id, _), became in zip(items, await answered(step), strict=True):
                if became is Retried.RETRIED:
                    report.retried += 1
                else:
                    report.skip(id, became)
            self._show(at + len(items))

    async def discard(self, report: Report) -> None:
        name = secrets.token_hex(8)
        for number, at in enumerate(range(0, len(self.ids), STEP)):
            ids = self.ids[at : at + STEP]

            def step(number: int = number, ids: Sequence[int] = ids) -> Awaitable[int]:
                return self.ledger.letters.discard(name, number, ids)

            discarded = await answered(step)
            report.discarded += discarded
            report.gone += len(ids) - discarded
            self._show(at + len(ids))

    def _show(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.ids))


async def answered(step: Callable[[], Awaitable[T]]) -> T:
    """Repeats a step whose answer was lost: the script knows it, and answers the same. A read may
    always be repeated."""
    backoff = Backoff(most=1.0)
    for _ in range(_TRIES):
        try:
            return await step()
        except ServerUnreachable:
            await backoff.pause()
    return await step()


WHY = {
    Retried.KEY_TAKEN: "its key has an unfinished task",
    Retried.PAYLOAD_GONE: "its arguments are gone",
    Retried.DAMAGED: "its record is damaged",
}
_MOST_IDS = 1_000


@dataclass(slots=True)
class Report:
    """The result of a batch: how many letters matched, how many were retried or discarded, and how
    many were skipped, by the reason, and the ids of the first thousand of them.

    `gone` letters were retried, discarded or dropped by somebody else in the meantime. `left`
    letters matched and were not tried, because of `most`. With `mark` the same call, repeated,
    concerns no letters that came later. `chains` counts automatic tasks that workers start again
    although their letter is gone.
    """

    mark: int
    matched: int = 0
    retried: int = 0
    discarded: int = 0
    gone: int = 0
    left: int = 0
    chains: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    skipped_ids: list[int] = field(default_factory=list[int])

    def skip(self, id: int, why: Retried) -> None:
        """Counts a letter that was not retried."""
        if why is Retried.GONE:
            self.gone += 1
            return
        self.skipped[WHY[why]] = self.skipped.get(WHY[why], 0) + 1
        if len(self.skipped_ids) < _MOST_IDS:
            self.skipped_ids.append(id)

    def add(self, other: Report) -> None:
        """Adds the numbers of another batch."""
        for name in ("matched", "retried", "discarded", "gone", "left", "chains"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for why, count in other.skipped.items():
            self.skipped[why] = self.skipped.get(why, 0) + count
        self.skipped_ids = [*self.skipped_ids, *other.skipped_ids][:_MOST_IDS]

    def as_json(self) -> dict[str, Any]:
        """All counts, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}
