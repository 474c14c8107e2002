"""The last steps of a run: its slot is freed, its settlement is written, in batches, until the
server has answered or the lease is given up, and then the run is reported."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from docket._aio import Backoff, cancel_and_wait
from docket.errors import TRANSIENT, NotOpen
from docket.ledger import Ledger, Settlement, SettleResult, SlotOffer, requeue
from docket.ledger.calls import BATCH_BYTES, batch_end
from docket.ledger.statistics import cell_of, cell_without_times, with_kind
from docket.ledger.tasks import BATCH
from docket.model.states import KIND_NUMBERS, EndingKind
from docket.storage.client.pipeline import SLOWEST_BYTES_PER_SECOND
from docket.storage.server import ANSWER_SECONDS

from .reporter import Reporter
from .runs import CancelReason, Run, RunEnd, Runs, Slots, UnwrittenEnd

logger: logging.Logger = logging.getLogger("docket.worker")


OnAnswer = Callable[[SettleResult], None]


# A write may fail for this many lease lengths.
LEASES = 3


class KeptLease(Protocol):
    """`kept_seconds` is how long the worker has kept its lease. `give_up` gives the lease up."""

    @property
    def kept_seconds(self) -> float: ...

    def give_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteDeadlines:
    """Decides when the worker stops to retry a write that never succeeds
    (docs/design/lease-protocol.md, "Settle")."""

    lease_seconds: float
    lease: KeptLease

    def begin(self, size: int) -> WriteDeadline:
        """The deadline of a write of this size, from its first failure."""
        return WriteDeadline(self.lease, LEASES * self.lease_seconds + size / SLOWEST_BYTES_PER_SECOND)

    def give_up_lease(self) -> None:
        self.lease.give_up()


class WriteDeadline:
    """Measures how long one write has failed while the lease was renewed. It stands still during an
    outage, when renewals fail as well."""

    def __init__(self, lease: KeptLease, most_seconds: float) -> None:
        self._lease = lease
        self._most_seconds = most_seconds
        self._began_at = lease.kept_seconds

    @property
    def seconds(self) -> float:
        return self._lease.kept_seconds - self._began_at

    @property
    def is_over(self) -> bool:
        return self.seconds > self._most_seconds


class SlotOffers(Protocol):
    """The source of the offers that the writer sends along with settlements."""

    def offer_slot(self) -> SlotOffer | None: ...

    def recheck(self) -> None: ...


@dataclass(slots=True, eq=False)
class Queued:
    """A settlement that is not written yet, and since when it waits."""

    settlement: Settlement
    on_answer: OnAnswer
    since: float
    # A factor on the usual time-out. It doubles each time the settlement fails in a batch of its
    # own.
    patience: float = 1.0
    # From its first failure in a batch of its own.
    deadline: WriteDeadline | None = None
    # Whether this is a requeue that replaces a settlement that could not be written.
    is_last_resort: bool = False


def _weight(item: Queued) -> int:
    return item.settlement.weight


class SettlementWriter:
    """Writes a settlement at once if no write is under way. Otherwise settlements gather for the
    next batch.

    The writer retries a write until the server answers: the epoch makes a repeat harmless. If a
    batch is not answered, the next batch is half as large. If a single settlement is not answered,
    it goes behind the others with twice the time-out; if it never arrives while the lease is
    renewed, the writer gives it up (`_shrunk`). Only `close()` stops the retries: an event loop
    that ends cancels every task, and the settlements must still be written.
    """

    # Set before the first run: the fetcher is built later.
    offers: SlotOffers

    def __init__(self, ledger: Ledger, name: str, deadlines: WriteDeadlines) -> None:
        self._ledger = ledger
        self._deadlines = deadlines
        self._outages = ledger.server.outages
        self._name = name
        self._waiting: list[Queued] = []
        self._under_way: list[Queued] = []
        self._flushing: asyncio.Task[None] | None = None
        self._storing: set[asyncio.Task[None]] = set()
        self._backoff = Backoff(most=1.0)
        self._most, self._budget = BATCH, BATCH_BYTES
        self._closed = False

    @property
    def oldest_age(self) -> float:
        """Seconds that the oldest settlement has waited
        to be written. Safe to call from any thread."""
        waiting = [*self._waiting, *self._under_way]
        return time.monotonic() - min(item.since for item in waiting) if waiting else 0.0

    def submit(self, settlement: Settlement, on_answer: OnAnswer) -> None:
        if self._closed:
            # The worker has stopped without waiting for this run; another worker gets its task.
            on_answer(SettleResult.LOST)
            return
        self._waiting.append(Queued(settlement, on_answer, time.monotonic()))
        if self._flushing is None:
            self._start()

    def _start(self) -> None:
        self._flushing = asyncio.create_task(self._flush(), name=f"{self._name} - settling")

    async def close(self) -> None:
        """Gives up the settlements that are still not written. The worker waits for them before it
        calls this."""
        self._closed = True
        under_way = [*self._storing, *([self._flushing] if self._flushing is not None else ())]
        await cancel_and_wait(under_way, "docket: the worker stops")
        self._outages.forget(self)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                end = batch_end(self._waiting, 0, self._most, _weight, self._budget)
                batch, self._waiting = self._waiting[:end], self._waiting[end:]
                self._under_way = batch
                await self._send(batch)
                self._under_way = []
        finally:
            self._under_way = []
            self._flushing = None
            if self._waiting and not self._closed:
                self._start()

    async def _send(self, batch: list[Queued]) -> None:
        offer = self.offers.offer_slot()
        patience = ANSWER_SECONDS * batch[0].patience if len(batch) == 1 else None
        try:
            settlements = [item.settlement for item in batch]
            answers = await self._ledger.tasks.settle(settlements, offer, patience=patience)
        except asyncio.CancelledError:
            self._waiting = batch + self._waiting
            raise
        except Exception as error:
            if offer is not None:
                # The server may have accepted the offer, and
                # may already have delivered a task for it.
                self.offers.recheck()
            if isinstance(error, TRANSIENT):
                self._outages.failed(self, "settling", error)
                self._put_back(batch)
                await self._outages.pause(self._backoff.next_pause())
            elif isinstance(error, NotOpen):
                self._give_up(batch, error)
            else:
                await self._send_singly(batch, error)
            return
        self._backoff.reset()
        self._outages.passed(self)
        self._most, self._budget = min(self._most * 2, BATCH), min(self._budget * 2, BATCH_BYTES)
        for item, answer in zip(batch, answers, strict=True):
            if answer is SettleResult.PAYLOAD_MISSING:
                self._store_again(item)
            else:
                _report(item, answer)

    def _store_again(self, item: Queued) -> None:
        """The payload has expired, because the server was
        unreachable for longer than the payload's lifetime."""
        task = asyncio.create_task(self._store_and_submit(item), name=f"{self._name} - storing again")
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store_and_submit(self, item: Queued) -> None:
        payload = item.settlement.payload
        assert payload is not None

        def try_longer(error: Exception) -> None:
            item.patience *= 2

        await self._outages.until_answered(
            lambda: self._ledger.payloads.store(payload, patience=item.patience),
            "storing a result again",
            on_failure=try_longer,
        )
        self.submit(item.settlement, item.on_answer)

    def _put_back(self, batch: list[Queued]) -> None:
        """Halves the next batch. A settlement that failed in a batch of its own goes behind the
        others."""
        if len(batch) > 1:
            self._most, self._budget = len(batch) // 2, max(sum(map(_weight, batch)) // 2, 1)
            self._waiting = batch + self._waiting
        else:
            batch[0].patience *= 2
            self._most = 1
            self._waiting += self._shrunk(batch[0])

    def _shrunk(self, item: Queued) -> list[Queued]:
        """Returns the next write to try after a settlement failed in a batch of its own.

        A settlement that never arrives while the lease is renewed becomes a requeue of a few bytes.
        If the requeue does not arrive either, the worker gives up its lease.
        """
        if item.deadline is None:
            item.deadline = self._deadlines.begin(item.settlement.weight)
        if not item.deadline.is_over:
            return [item]
        key, seconds = item.settlement.key, item.deadline.seconds
        if item.is_last_resort:
            logger.error("task %r could not be requeued for %.0f s; the worker gives up its lease", key, seconds)
            _report(item, SettleResult.LOST)
            self._deadlines.give_up_lease()
            return []
        logger.error(
            "the ending of task %r could not be written for %.0f s; the task is requeued and runs again", key, seconds
        )
        small = requeue(key, item.settlement.epoch, begun=True)
        small.worker = item.settlement.worker
        if item.settlement.cell:
            small.cell = with_kind(item.settlement.cell, KIND_NUMBERS[EndingKind.INTERRUPTED])
            small.measures = item.settlement.measures
        return [Queued(small, lambda _: _report(item, SettleResult.LOST), item.since, is_last_resort=True)]

    def _give_up(self, batch: list[Queued], error: NotOpen) -> None:
        logger.error(
            "%d ending(s) could not be written: %s; other workers will run those tasks again", len(batch), error
        )
        for item in batch:
            _report(item, SettleResult.LOST)

    async def _send_singly(self, batch: list[Queued], error: Exception) -> None:
        """Sends the settlements of a refused batch one by one: a bad one must not block the
        others."""
        if len(batch) > 1:
            for number, item in enumerate(batch):
                try:
                    await self._send([item])
                except asyncio.CancelledError:
                    self._waiting += batch[number + 1 :]
                    raise
            return
        key = batch[0].settlement.key
        logger.error("cannot settle task %r: %s; it will be recovered when this worker stops", key, error)
        _report(batch[0], SettleResult.LOST)


def _report(item: Queued, answer: SettleResult) -> None:
    """Calls `on_answer`. An error in it (from a metrics exporter
    or a log handler) must not affect the other items."""
    try:
        item.on_answer(answer)
    except Exception:
        logger.exception("the report of the end of task %r failed", item.settlement.key)


class RunCloser:
    """The last step of every run."""

    def __init__(self, runs: Runs, slots: Slots, writer: SettlementWriter, reporter: Reporter) -> None:
        self._runs = runs
        self._slots = slots
        self._writer = writer
        self._report = reporter
        # Since the session began.
        self.ended_runs: int = 0
        # Runs that were given up while the server could not be reached, and whether their body had
        # begun.
        self._given_up: list[tuple[Run, bool]] = []
        # Called when the server does not accept the end of a run that this worker believed to
        # have: its task may be a delivery of this worker without a run.
        self.on_superseded: Callable[[], None] = lambda: None

    def close(self, run: Run, end: RunEnd) -> None:
        """Ends a run. Its settlement is counted when the server accepts it, and not before."""
        if isinstance(end, UnwrittenEnd):
            if end is UnwrittenEnd.GIVEN_UP:
                self._give_up(run, begun=True)
            else:
                self._forget(run)
            return
        self._over(run)
        if run.where is not None:
            # Code that the body left running may still hold the execution. It must not schedule
            # another run any more.
            run.execution.epoch = 0
        end.worker = run.worker
        if run.kind is not None:
            _count(run, run.kind, end)
        self._writer.submit(end, partial(self._settled, run, end))

    def requeue(self, run: Run) -> None:
        """Gives back a run that has not begun. If the lease is lost, there is nothing to write."""
        if run.is_lost:
            self._give_up(run, begun=False)
        else:
            self.close(run, requeue(run.key, run.epoch))

    async def settle_and_wait(self, run: Run, settlement: Settlement) -> SettleResult:
        """Settles a run and returns the answer. The run stays open."""
        answered: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        settlement.worker = run.worker
        self._writer.submit(settlement, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    # Runs that were given up

    def requeue_given_up(self) -> None:
        """The server is reachable again and the lease is kept: the runs that were given up
        still belong to this worker, unless they were replaced."""
        given_up, self._given_up = self._given_up, []
        for run, begun in given_up:
            kind = EndingKind.INTERRUPTED if begun else None
            self.close(run, run.ends(requeue(run.key, run.epoch, begun=begun), kind, where=None))

    def forget_given_up(self) -> None:
        """The lease is lost: other workers have these runs, and nothing is written."""
        given_up, self._given_up = self._given_up, []
        for run, _ in given_up:
            self._forget(run)

    def _give_up(self, run: Run, *, begun: bool) -> None:
        if run.reason is CancelReason.LEASE_LOST:
            self._forget(run)
        else:
            self._over(run)
            self._given_up.append((run, begun))

    # The end

    def _over(self, run: Run) -> None:
        """The body has ended, so the slot is free. The run stays in `Runs` until it is settled."""
        run.over = True
        if run.holds_slot:
            run.holds_slot = False
            self.ended_runs += 1
            self._slots.give_back()

    def _forget(self, run: Run) -> None:
        self._over(run)
        self._runs.remove(run)

    def _settled(self, run: Run, settlement: Settlement, answer: SettleResult) -> None:
        self._runs.remove(run)
        if run.where is None:
            self._unreported(run, answer)
        elif answer is SettleResult.LOST and not run.is_lost:
            self._report.superseded(run.execution, run.where)
            self.on_superseded()
        elif answer is SettleResult.CANCELLED:
            self._report.count(run.execution, EndingKind.CANCELLED, None)
        elif run.kind is not None:
            self._report.count(run.execution, run.kind, settlement)

    def _unreported(self, run: Run, answer: SettleResult) -> None:
        if run.error is not None:
            # A task that was replaced in the meantime is not buried.
            if answer is SettleResult.DONE:
                logger.error("task %r cannot be read and is buried: %s", run.key, run.error)
        elif answer is SettleResult.CANCELLED:
            self._report.never_began()


def _count(run: Run, kind: EndingKind, settlement: Settlement) -> None:
    """Adds the count for the statistics, which holds if the settlement is accepted."""
    seconds = run.seconds
    if seconds is None:
        settlement.cell = cell_without_times(KIND_NUMBERS[kind])
        return
    task = run.execution.record
    assert task is not None
    waited_ms = run.claimed_ms - task.due_ms
    # In the order of `Measures`, but made in a third of the time.
    settlement.cell, settlement.measures = cell_of(KIND_NUMBERS[kind], seconds, waited_ms), (seconds,)
