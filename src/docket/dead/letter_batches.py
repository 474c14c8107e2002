"""Retries and discards many letters, in small steps that may be repeated
(docs/design/dead-letters.md)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from docket._aio import Backoff
from docket.errors import ServerUnreachable
from docket.ledger import Ledger
from docket.ledger.letters import STEP, Retried
from docket.model.times import duration_ms

from .reports import Report

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
