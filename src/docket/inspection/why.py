"""Finds why a task is not running (docs/design/why.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from docket.codec.envelope import HEADER_SIZE, is_newer
from docket.ledger.facts import TaskFacts
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage.records import (
    HELD,
    RECORD_VERSION,
    SCHEDULED,
    UNKNOWN_FUNCTION,
    WAITING_FOR_SLOT,
    TaskRecord,
)

from .ended_reasons import EndedReasons
from .reason_writer import counted, shown_worker
from .reasons import Reason, ReasonCode
from .rule_reasons import RuleReasons

if TYPE_CHECKING:
    from docket.docket import Docket


async def find_reason(docket: Docket, key: str) -> Reason:
    """Why the task of that key is not running, or what became of it."""
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users may pass anything
        raise TypeError(f"why({key!r}): the key of a task is text")
    return (await read_reason(docket, key))[0]


async def read_reason(docket: Docket, key: str) -> tuple[Reason, TaskFacts]:
    """The reason, and the facts from which it follows."""
    await docket.wait_for_strikes_loaded()
    facts = await docket.ledger.queries.facts(key)
    causes = list(_Causes(docket, key, facts).all())
    return replace(causes[0], also=tuple(causes[1:])), facts


class _Causes(RuleReasons):
    """All causes of one task, the one that counts first."""

    def all(self) -> Iterator[Reason]:
        task, run = self._facts.task, self._facts.run
        if task is None:
            yield from EndedReasons(self._docket.name, self._common["key"], self._facts).all()
            return
        state = task.state if run is None else ExecutionState.RUNNING
        self._common |= {"state": state, "function": task.function_name, "attempt": task.attempt}
        if run is not None:
            yield from self._running(task)
            return
        yield from self._unreadable(task)
        yield from self._struck(task)
        yield from self._held()
        yield from self._waits_for_something(task)
        yield from self._will_be_held()
        yield from self._workers(task)
        yield from self._is_ready(task)
        yield from self._may_be_struck(task)
        yield from self._may_be_held()

    # A run

    def _running(self, task: TaskRecord) -> Iterator[Reason]:
        run = self._facts.run
        assert run is not None
        worker = shown_worker(run.worker)
        words = f"The task is running: worker {worker!r} claimed it {self._ago(run.started_ms)}"
        if task.attempt > 1:
            words += f" (attempt {task.attempt})"
        if run.cancel_asked:
            words += "; a cancel was requested"
        since = from_ms(run.started_ms)
        yield self._reason(ReasonCode.RUNNING, f"{words}.", worker=worker, since=since)
        if not self._facts.number("is_alive"):
            ended = self._facts.time_ms("lease")
            lease = "has no lease" if ended is None else f"has not renewed its lease, which ended {self._ago(ended)}"
            yield self._reason(
                ReasonCode.WORKER_SILENT,
                f"Worker {worker!r} {lease}: another worker will take the task over.",
                worker=worker,
                since=None if ended is None else from_ms(ended),
            )

    # What no worker of this release runs

    def _unreadable(self, task: TaskRecord) -> Iterator[Reason]:
        newer, envelope = None, self._facts.envelope
        if task.location > HELD:
            newer = f"location {task.location}"
        elif task.version != RECORD_VERSION:
            newer = f"a record of version {task.version}"
        elif len(envelope) == HEADER_SIZE and is_newer(envelope):
            newer = f"arguments of version {envelope[0]}"
        if newer is not None:
            words = f"A newer release of docket wrote the task ({newer}): it waits for a worker of that release."
            yield self._reason(ReasonCode.NEWER_RELEASE, words)
        elif self._facts.is_broken or len(envelope) < HEADER_SIZE:
            what = "The record" if self._facts.is_broken or task.reference is None else "The stored arguments"
            words = f"{what} of the task cannot be read: the next worker that gets the task buries it."
            yield self._reason(ReasonCode.UNREADABLE, words)

    # A time or a limit

    def _waits_for_something(self, task: TaskRecord) -> Iterator[Reason]:
        at_ms = self._facts.time_ms("at")
        if task.location == WAITING_FOR_SLOT and self._facts.limit is not None:
            yield self._full_limit(self._facts.limit)
        elif task.location == SCHEDULED and at_ms is not None and at_ms > self._now and not self._is_met_suspect():
            yield self._scheduled(task, at_ms)

    def _is_met_suspect(self) -> bool:
        """Whether a busy worker has met the suspect: it waits in the schedule for half a second."""
        return self._facts.suspect is not None and self._facts.suspect.was_met

    # Workers

    def _workers(self, task: TaskRecord) -> Iterator[Reason]:
        workers, knowing = self._facts.number("workers"), self._facts.number("knowing")
        self._common |= {"workers": workers, "workers_that_know": knowing}
        since_ms = self._facts.time_ms("unknown_since")
        since = None if since_ms is None else from_ms(since_ms)
        if not workers:
            yield self._no_worker()
        elif not knowing:
            words = f"{_none_of(workers)} the function {task.function_name!r}"
            words += "." if since_ms is None else f"; its tasks have waited for {self._for(since_ms)}."
            yield self._reason(ReasonCode.FUNCTION_UNKNOWN, words, since=since)
        elif task.location == UNKNOWN_FUNCTION:
            before = self._facts.number("before")
            those = "1 live worker that knows" if knowing == 1 else f"{knowing:,} live workers that know"
            words = f"The {those} the function {task.function_name!r} did not take the task yet"
            words += f"; {counted(before, 'task')} of it {'is' if before == 1 else 'are'} before this one."
            yield self._reason(ReasonCode.FUNCTION_BUSY, words, since=since, before=before, before_is_exact=True)

    def _no_worker(self) -> Reason:
        stopping, gone, lapsed = self._facts.number("stopping"), self._facts.last_worker, self._facts.lapsed
        if lapsed is not None:
            those = "The only worker has not" if lapsed[0] == 1 else f"None of the {lapsed[0]:,} workers has"
            words = f"{those} renewed its lease in time: the last renewal was {self._ago(lapsed[1])}."
            return self._reason(ReasonCode.NO_WORKER, words)
        if stopping:
            those = "The only live worker is" if stopping == 1 else f"All {stopping:,} live workers are"
            return self._reason(ReasonCode.NO_WORKER, f"{those} stopping and takes no more tasks.")
        if gone is None:
            return self._reason(ReasonCode.NO_WORKER, "No worker of this docket is alive.")
        name, at_ms = shown_worker(gone[0]), gone[1]
        words = f"No worker of this docket is alive: the last one, {name!r}, was gone {self._ago(at_ms)}."
        return self._reason(ReasonCode.NO_WORKER, words, worker=name, since=from_ms(at_ms))

    # Ready

    def _is_ready(self, task: TaskRecord) -> Iterator[Reason]:
        facts, at_ms = self._facts, self._facts.time_ms("at")
        if task.location == SCHEDULED:
            if at_ms is None:
                yield self._unreachable()
            elif facts.suspect is not None:
                yield self._suspect(task, due=from_ms(at_ms))
            elif at_ms <= self._now:
                yield self._staging(at_ms)
            return
        if task.location in (WAITING_FOR_SLOT, UNKNOWN_FUNCTION):
            if task.location == WAITING_FOR_SLOT and facts.limit is None:
                yield self._unreachable()
            return
        if task.location == HELD and facts.hold is None:
            yield self._unreachable()
        if task.location >= HELD:
            return
        if facts.suspect is not None and (facts.has_position or facts.delivery is not None):
            yield self._suspect(task)
        elif facts.delivery is not None:
            yield self._delivered()
        elif facts.has_position:
            yield self._next_in_line()
            yield from self._reserved_workers()
        else:
            yield self._unreachable()

    def _staging(self, at_ms: float) -> Reason:
        leader, before = self._facts.text("leader"), self._facts.number("before")
        name = shown_worker(leader) if leader else None
        mover = f"the leader, {name!r}, moves it to the stream" if name else "no worker leads yet"
        words = f"The task has been due for {self._for(at_ms)}: {mover}; {_due_before(before)}."
        due, facts = from_ms(at_ms), {"before": before, "before_is_exact": True}
        return self._reason(ReasonCode.STAGING, words, due=due, since=due, worker=name, **facts)

    def _delivered(self) -> Reason:
        delivery = self._facts.delivery
        assert delivery is not None
        worker, since_ms = shown_worker(delivery.worker), self._now - delivery.idle_ms
        if not delivery.worker:
            # The server does not permit this user to ask which worker it is.
            return self._reason(ReasonCode.DELIVERED, "A worker has received the task and has not begun it yet.")
        if delivery.is_alive:
            words = f"Worker {worker!r} received the task {self._ago(since_ms)} and has not begun it yet."
        else:
            words = f"Worker {worker!r} received the task and has no lease: another worker will take the task over."
        return self._reason(ReasonCode.DELIVERED, words, worker=worker, since=from_ms(since_ms))

    def _unreachable(self) -> Reason:
        words = "The task is ready, but no worker can find it: the next sweep of the leader puts it back."
        return self._reason(ReasonCode.UNREACHABLE, words)

    def _next_in_line(self) -> Reason:
        before, is_exact = self._facts.number("before"), not self._facts.number("is_more")
        workers, running = self._facts.number("workers"), self._facts.number("running")
        place = f"{counted(before, 'task')} {'is' if before == 1 else 'are'} before it"
        if not is_exact:
            place = f"more than {counted(before, 'task')} are before it"
        elif not before:
            place = "it is the next one"
        fleet = ""
        if workers:
            those = "1 live worker runs" if workers == 1 else f"{workers:,} live workers run"
            fleet = f"; {those} {counted(running, 'task')}"
        words = f"The task is ready and waits for a worker to take it: {place}{fleet}."
        return self._reason(ReasonCode.READY, words, before=before, before_is_exact=is_exact)

    def _reserved_workers(self) -> Iterator[Reason]:
        alone = self._facts.alone
        if alone is not None:
            those = "1 worker takes" if alone[0] == 1 else f"{alone[0]:,} workers take"
            words = f"{those} no other task, because of a suspect: {alone[1]!r}."
            yield self._reason(ReasonCode.WORKERS_RESERVED, words)


def _none_of(workers: int) -> str:
    return "The only live worker does not know" if workers == 1 else f"None of the {workers:,} live workers knows"


def _due_before(before: int) -> str:
    return (
        "it is the next one"
        if not before
        else f"{counted(before, 'due task')} {'is' if before == 1 else 'are'} before it"
    )
