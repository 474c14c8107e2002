"""Changes under way, for the tabs that watch a docket."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

_numbers = itertools.count(1)


@dataclass(slots=True)
class Job:
    """A change under way, and how far it is."""

    id: int
    title: str
    who: str
    done: int = 0
    total: int | None = None

    def show(self, done: int, total: int) -> None:
        self.done, self.total = done, total


class Jobs:
    """The changes that this process makes on one docket now."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    @contextmanager
    def job(self, title: str, who: str) -> Generator[Job]:
        made = Job(next(_numbers), title, who)
        self._jobs[made.id] = made
        try:
            yield made
        finally:
            del self._jobs[made.id]
