"""Mistakes with dead letters."""

from __future__ import annotations

from typing import Any

from chaos.nemesis.workers import KillWorker
from docket.worker.running import final_settlements

from .base import BrokenBuild


class FailuresNotKept(BrokenBuild):
    """Every third task that fails for good is forgotten."""

    name = "failures not kept"
    faults = (KillWorker(),)
    work = ("failing for good", "plain")
    rate = 30.0
    seconds = 8.0
    gap_seconds = 3.0

    def apply(self) -> None:
        of_failure: Any = vars(final_settlements.LetterNotes)["of_failure"]

        def forget_some(self: Any, run: Any, *args: Any) -> Any:
            return None if run.epoch % 3 == 0 else of_failure(self, run, *args)

        setattr(final_settlements.LetterNotes, "of_failure", forget_some)  # noqa: B010
