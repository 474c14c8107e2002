"""Holds runs that a pause matches, before their body begins (docs/design/pause.md)."""

from __future__ import annotations

import asyncio
import logging

from docket._aio import Backoff
from docket.errors import TRANSIENT, UnknownKey
from docket.ledger import SettleResult, hold
from docket.storage.records import IN_FRONT, read_task

from .decisions import Decisions
from .outcome import CLOSED, Outcome
from .pause_rules import PauseRules
from .reporter import Reporter
from .run_settler import RunSettler
from .runs import Run

logger: logging.Logger = logging.getLogger("docket.worker")

_LONGEST_PAUSE = 1.0


class Holder:
    """Asks the pauses about each run while there are any."""

    def __init__(self, rules: PauseRules, run_settler: RunSettler, decisions: Decisions, reporter: Reporter) -> None:
        self.rules = rules
        self._decisions = decisions
        self._run_settler = run_settler
        self._report = reporter

    async def judge(self, run: Run) -> Outcome | None:
        """The outcome of a run that a pause holds. The server has the last word: if it has resumed
        the pause in the meantime, the run goes on."""
        from_front = read_task(run.record).location == IN_FRONT
        while True:
            await self._load()
            reason = self.rules.closed(run.execution.function_name)
            if reason is not None:
                return self._decisions.left_for_others(run, UnknownKey(reason))
            rule = self.rules.match(run.execution, from_front=from_front)
            if rule is None:
                return None
            answer = await self._run_settler.ask(run, hold(run.key, run.epoch, rule))
            if answer is not SettleResult.KEPT:
                if answer is SettleResult.DONE:
                    self._report.held(run.execution)
                return CLOSED
            self.rules.expect_change()

    async def _load(self) -> None:
        """A task that may have to be held does not begin while the server cannot be asked. If the
        lease ends in the meantime, the run is cancelled."""
        backoff = Backoff(most=_LONGEST_PAUSE)
        while True:
            try:
                return await self.rules.load()
            except TRANSIENT:
                await asyncio.sleep(backoff.next_pause())
