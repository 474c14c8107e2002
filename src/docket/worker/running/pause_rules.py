"""The pauses that this worker knows, and the runs that they hold before their body begins
(docs/design/pause.md). The server decides whether a pause holds a task, so the worker has only a
cache of them."""

from __future__ import annotations

import asyncio
import logging

from docket.codec.proofs import proven_body
from docket.docket import Docket
from docket.errors import UnknownKey
from docket.ledger import SettleResult, hold
from docket.ledger.rules import WHOLE_DOCKET
from docket.storage.records import read_task
from docket.storage.schema.locations import IN_FRONT
from docket.storage.subscriptions import Inquiry
from docket.strikelist.conditions import Index, TaskToMatch
from docket.strikelist.pauses import Pause
from docket.worker.lease.registration import Registration

from .decisions import Decisions
from .reporter import Reporter
from .runs import Run, RunEnd, UnwrittenEnd
from .settlement_writer import RunCloser

logger: logging.Logger = logging.getLogger("docket.worker")

_MOST_LOGGED = 100


class _Matcher:
    """Pauses of one state, to compare with tasks."""

    def __init__(self, pauses: list[Pause]) -> None:
        self._has_whole_docket = False
        self._index = Index()
        for pause in pauses:
            if pause.id == WHOLE_DOCKET:
                self._has_whole_docket = True
            elif pause.problem is None:
                self._index.add(pause.id, pause.rule)

    def match(self, task: TaskToMatch) -> str | None:
        id = self._index.match_call(task)
        return WHOLE_DOCKET if id is None and self._has_whole_docket else id


class PauseRules:
    """Reads the pauses when they have changed, and finds the one that matches a task."""

    def __init__(self, docket: Docket, registration: Registration) -> None:
        self._docket = docket
        self._registration = registration
        # Whether a pause may match. Every run reads this.
        self.may_match: bool = False
        # Set when the pauses have changed, or may have.
        self.changed: asyncio.Event = asyncio.Event()
        # The ids of the pauses that are being resumed.
        self.resuming: list[str] = []
        # Functions, or None for all, with a pause that only other workers can read.
        self._closed: dict[str | None, str] = {}
        self._logged: set[str] = set()
        self._version = b""
        self._is_stale = False
        self._loading = asyncio.Lock()
        self._paused, self._resuming = _Matcher([]), _Matcher([])
        self._inquiry = Inquiry(self.expect_change)

    async def open(self) -> None:
        """Subscribes first and then reads, so that no change is missed in between."""
        self.close()
        channel, subscriptions = self._docket.keys.pause_channel, self._docket.subscriptions
        await subscriptions.listen(channel, self._on_message)
        subscriptions.on_gap(self, self.expect_change)
        self._docket.ledger.pause_listeners.add(self._on_version)
        self.expect_change()
        await self.load()

    def close(self) -> None:
        self._docket.ledger.pause_listeners.discard(self._on_version)
        self._docket.subscriptions.forget_gap(self)
        self._docket.subscriptions.unlisten(self._docket.keys.pause_channel, self._on_message)
        self._inquiry.close()

    def expect_change(self) -> None:
        """The pauses are read again before the next task begins."""
        self._is_stale = self.may_match = True
        self.changed.set()

    async def load(self) -> None:
        """Reads the pauses if they may have changed."""
        async with self._loading:
            if not self._is_stale:
                return
            self._is_stale = False
            try:
                self._version, pauses = await self._docket.pause_store.read()
            except BaseException:
                self._is_stale = True
                raise
            self._paused = _Matcher([pause for pause in pauses if not pause.is_resuming])
            self._resuming = _Matcher([pause for pause in pauses if pause.is_resuming])
            self.resuming = [pause.id for pause in pauses if pause.is_resuming]
            self._note_unreadable([pause for pause in pauses if pause.problem is not None])
            self.may_match = bool(pauses) or self._is_stale

    async def load_until_answered(self) -> None:
        await self._docket.server.outages.until_answered(self.load, "reading the pauses")

    def closed(self, function: str) -> str | None:
        """Why this worker must not begin tasks of the function: there is a pause that only another
        worker can read, and that may be about them."""
        return (self._closed.get(function) or self._closed.get(None)) if self._closed else None

    def _note_unreadable(self, pauses: list[Pause]) -> None:
        """A pause that nobody sealed for this docket holds nothing."""
        self._closed = {pause.function: f"{pause}: {pause.problem}" for pause in pauses if pause.needs_other}
        for pause in pauses:
            if pause.id not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(pause.id)
                what = "its tasks are left to other workers" if pause.needs_other else "it holds nothing"
                logger.error("%s cannot be read here, so %s (%s)", pause, what, pause.problem)

    def match(self, task: TaskToMatch, *, from_front: bool) -> str | None:
        """The id of a pause that holds the task. While a pause is being resumed, it lets the tasks
        of the front stream pass."""
        id = self._paused.match(task)
        return self._resuming.match(task) if id is None and not from_front else id

    def _on_version(self, version: bytes) -> None:
        """A claim says which pauses that compare arguments are in force."""
        if version != self._version:
            self.expect_change()

    def _on_message(self, message: bytes) -> None:
        if proven_body(self._registration.secret, b"P", b"pauses", b"", message) is not None:
            self.expect_change()
        else:
            self._docket.subscriptions.ignored.note("pauses")
            self._inquiry.request()


class Holder:
    """Asks the pauses about each run while there are any."""

    def __init__(self, rules: PauseRules, closer: RunCloser, decisions: Decisions, reporter: Reporter) -> None:
        self.rules = rules
        self._decisions = decisions
        self._closer = closer
        self._report = reporter

    async def judge(self, run: Run) -> RunEnd | None:
        """The end of a run that a pause holds. The server has the last word: if it has resumed
        the pause in the meantime, the run goes on."""
        from_front = read_task(run.record).location == IN_FRONT
        while True:
            # A task that may have to be held does not begin while the server cannot be asked. If
            # the lease ends in the meantime, the run is cancelled.
            await self.rules.load_until_answered()
            reason = self.rules.closed(run.execution.function_name)
            if reason is not None:
                return self._decisions.left_for_others(run, UnknownKey(reason))
            rule = self.rules.match(run.execution, from_front=from_front)
            if rule is None:
                return None
            answer = await self._closer.settle_and_wait(run, hold(run.key, run.epoch, rule))
            if answer is not SettleResult.KEPT:
                if answer is SettleResult.DONE:
                    self._report.held(run.execution)
                return UnwrittenEnd.CLOSED
            self.rules.expect_change()
