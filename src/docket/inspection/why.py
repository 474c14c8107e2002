"""Finds why a task is not running (docs/design/why.md):
each cause is a code, a sentence and facts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from docket.codec.envelopes import HEADER_SIZE, is_newer
from docket.errors import Undecodable, UnknownVersion
from docket.execution.context import DocketContext
from docket.ledger import Ending, read_ending
from docket.ledger.facts import Delay, FullLimit, TaskFacts
from docket.ledger.fleet import worker_name
from docket.ledger.letters import BuriedChain, finished_record
from docket.model.histograms import Histogram
from docket.model.places import words_of
from docket.model.states import ExecutionState
from docket.model.texts import escaped
from docket.model.times import format_duration, from_ms
from docket.storage.records import FinishedRecord, TaskRecord
from docket.storage.schema.locations import (
    HELD,
    IN_FRONT,
    IN_STREAM,
    LAST_LOCATION,
    SCHEDULED,
    UNKNOWN_FUNCTION,
    WAITING_FOR_SLOT,
)
from docket.storage.schema.records import RECORD_VERSION

from .reasons import BlockingLimit, Reason, ReasonCode, SlotHolder
from .summaries import place_of


async def find_reason(docket: DocketContext, key: str) -> Reason:
    """Why the task of that key is not running, or what became of it."""
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users may pass anything
        raise TypeError(f"why({key!r}): the key of a task is text")
    return (await read_reason(docket, key))[0]


async def read_reason(docket: DocketContext, key: str) -> tuple[Reason, TaskFacts]:
    """The reason, and the facts from which it follows."""
    await docket.wait_for_strikes_loaded()
    facts = await docket.ledger.queries.facts(key)
    causes = list(_Causes(docket, key, facts).all())
    return replace(causes[0], also=tuple(causes[1:])), facts


# The longest text of a user in a sentence.
_LONGEST = 200


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def shortened(text: str) -> str:
    """A user's text in a sentence."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def shown_worker(id: str) -> str:
    """The name of a worker, or its id if that is not one that docket makes."""
    return worker_name(id) or id


class _ReasonWriter:
    """The facts about one task, and what all of its reasons have in common."""

    def __init__(self, key: str, facts: TaskFacts) -> None:
        self._facts = facts
        self._now = facts.now_ms
        self._common: dict[str, Any] = {"key": key, "taken": from_ms(facts.now_ms)}

    def _reason(self, code: ReasonCode, sentence: str, **facts: Any) -> Reason:
        return Reason(code=code, sentence=escaped(sentence), **{**self._common, **facts})

    def _for(self, ms: float) -> str:
        """How long something has been so since that time."""
        return format_duration(max(self._now - ms, 0) / 1000)

    def _ago(self, ms: float) -> str:
        return f"{self._for(ms)} ago"


# A waiter further behind, or a limit with more slots, is estimated by its share.
_MOST_STEPS = 10_000


def slot_wait(limit: FullLimit, run_times: Histogram, now_ms: float) -> timedelta | None:
    """How long the task waits for a slot, if all runs take the usual time. None if no run of its
    function has ended lately, or if the place of the task is not known."""
    usual, long = run_times.p50, run_times.p95
    if usual is None or long is None or limit.rank is None or limit.most < 1:
        return None
    if limit.rank > _MOST_STEPS or limit.most > _MOST_STEPS:
        return timedelta(seconds=(limit.rank + 1) * usual / limit.most)
    ages = [max(now_ms - holder.epoch / 1000, 0) / 1000 for holder in limit.holders if holder.epoch]
    # When each slot becomes free. A holder that is not known is taken to be half-way.
    free = [_time_left(age, usual, long) for age in ages][: limit.most]
    in_use = min(limit.in_use, limit.most)
    free += [usual / 2] * (in_use - len(free)) + [0.0] * (limit.most - max(in_use, len(free)))
    heapq.heapify(free)
    for _ in range(limit.rank):
        heapq.heapreplace(free, free[0] + usual)
    return timedelta(seconds=free[0])


def _time_left(age: float, usual: float, long: float) -> float:
    """How long a run goes on that has taken `age` so far. One that has taken longer than 19 of 20
    runs may well take as long again."""
    if age < usual:
        return usual - age
    return long - age if age < long else age


_NAMED_HOLDERS = 3


def limit_names(name: str) -> tuple[str, str | None, str | None]:
    """The name of a limit, and the parameter or the function that it counts
    (docs/design/limits.md)."""
    family, _, rest = name.partition("~")
    counted = rest.partition("~")[0]
    if family == "arg" and counted:
        return name, counted, None
    return name, None, counted if family == "task" and counted else None


def _limit_words(name: str, parameter: str | None, function: str | None) -> str:
    if parameter is not None:
        return f"on {parameter!r}"
    return f"of the function {function!r}" if function is not None else repr(name)


def _held_by(limit: FullLimit) -> str:
    named = [repr(holder.key) for holder in limit.holders if holder.key][:_NAMED_HOLDERS]
    others = limit.in_use - len(named)
    if others > 0:
        named.append(f"{others:,} {'more' if named else 'runs' if others > 1 else 'run'}")
    return " and ".join((", ".join(named[:-1]), named[-1]) if len(named) > 1 else named) or "nobody"


class _EndedCauses(_ReasonWriter):
    """Explains a task that is not there any more, or never was."""

    def __init__(self, docket: str, key: str, facts: TaskFacts) -> None:
        super().__init__(key, facts)
        self._docket = docket

    def all(self) -> Iterator[Reason]:
        facts, buried, foreign = self._facts, self._facts.buried, "foreign" in self._facts.facts
        cancelled_ms = facts.time_ms("chain_cancelled")
        try:
            record, kept = facts.read_finished(), facts.read_letter()
            letter = finished_record(kept) if kept is not None else None
            endings = [read_ending(found.tail) if found is not None else Ending() for found in (record, letter)]
        except (Undecodable, UnknownVersion) as problem:
            yield self._reason(ReasonCode.UNREADABLE, f"The task has ended, and its record cannot be read: {problem}.")
            return
        if buried is not None:
            yield self._buried(buried)
        # A key may be used again after its failure: what it did last counts.
        if record is not None and (letter is None or record.completed_ms > letter.completed_ms):
            yield self._finished(record, endings[0])
        if letter is not None:
            yield self._letter(letter, endings[1])
        if cancelled_ms is not None and buried is None:
            words = f"The chain of this automatic task was ended {self._ago(cancelled_ms)}: "
            words += "the next deploy begins it again, or somebody who adds it."
            yield self._reason(ReasonCode.CHAIN_CANCELLED, words, since=from_ms(cancelled_ms))
        if foreign:
            words = "pydocket has left this task, which docket does not run: it waits for `docket import`."
            yield self._reason(ReasonCode.LEFT_BY_PYDOCKET, words)
        if record is None and letter is None and buried is None and cancelled_ms is None and not foreign:
            yield self._never_heard_of()

    def _buried(self, buried: BuriedChain) -> Reason:
        words = f"This automatic task was buried {self._ago(buried.since_ms)}: workers do not start it "
        words += "until its letter is retried (docket dead retry)."
        return self._reason(ReasonCode.BURIED, words, state=ExecutionState.FAILED, since=from_ms(buried.since_ms))

    def _finished(self, record: FinishedRecord, ending: Ending) -> Reason:
        words = f"The task {_ended_words(record.state)} {self._ago(record.completed_ms)}"
        error = f": {shortened(ending.error)}" if ending.error else ""
        return self._reason(ReasonCode.FINISHED, f"{words}{error}.", **_facts(record, ending))

    def _letter(self, letter: FinishedRecord, ending: Ending) -> Reason:
        error = f": {shortened(ending.error)}" if ending.error else ""
        words = f"The task failed {self._ago(letter.completed_ms)} and is kept as a dead letter{error}."
        return self._reason(ReasonCode.DEAD_LETTER, words, **_facts(letter, ending))

    def _never_heard_of(self) -> Reason:
        key, declared = self._common["key"], self._facts.execution_ttl_ms
        words = f"Docket {self._docket!r} has no task {key!r} and no record of one: "
        words += "it was never added, or it ended and its record has expired"
        if len(declared) == 1:
            words += f" (records of finished tasks are kept for {format_duration(declared.pop() / 1000)})"
        return self._reason(ReasonCode.NEVER_HEARD_OF, f"{words}.")


def _facts(record: FinishedRecord, ending: Ending) -> dict[str, Any]:
    return {
        "state": record.state,
        "function": record.task.function_name,
        "attempt": record.task.attempt,
        "worker": ending.worker,
        "error": ending.error,
        "since": from_ms(record.completed_ms),
    }


def _ended_words(state: ExecutionState) -> str:
    return "was cancelled" if state is ExecutionState.CANCELLED else state.value


class _Causes(_ReasonWriter):
    """All causes of an unfinished task, the one that counts first."""

    def __init__(self, docket: DocketContext, key: str, facts: TaskFacts) -> None:
        super().__init__(key, facts)
        self._docket = docket

    def all(self) -> Iterator[Reason]:
        task, run = self._facts.task, self._facts.run
        if task is None:
            yield from _EndedCauses(self._docket.name, self._common["key"], self._facts).all()
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
        if task.location > LAST_LOCATION:
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

    # A time, a limit, or a worker of its own

    def _waits_for_something(self, task: TaskRecord) -> Iterator[Reason]:
        at_ms = self._facts.time_ms("at")
        if task.location == WAITING_FOR_SLOT and self._facts.limit is not None:
            yield self._full_limit(self._facts.limit)
        elif task.location == SCHEDULED and at_ms is not None and at_ms > self._now and not self._is_met_suspect():
            yield self._scheduled(task, at_ms)
        elif HELD < task.location <= LAST_LOCATION:
            yield self._elsewhere(task)

    def _is_met_suspect(self) -> bool:
        """Whether a busy worker has met the suspect: it waits in the schedule for half a second."""
        return self._facts.suspect is not None and self._facts.suspect.was_met

    def _full_limit(self, limit: FullLimit) -> Reason:
        holders = tuple(
            SlotHolder(
                key=holder.key or None,
                worker=shown_worker(holder.worker) if holder.worker else None,
                since=from_ms(holder.epoch / 1000) if holder.epoch else None,
            )
            for holder in limit.holders
        )
        name, parameter, function = limit_names(limit.name)
        slots = f"its {counted(limit.most, 'slot')} {'is' if limit.most == 1 else 'are'} held by {_held_by(limit)}"
        if limit.in_use < limit.most:
            slots = f"{limit.in_use:,} of its {counted(limit.most, 'slot')} are in use"
        words = f"The task waits for a slot of the limit {_limit_words(name, parameter, function)}: {slots}"
        claimed = [holder.epoch for holder in limit.holders if holder.epoch]
        if claimed:
            words += f", for {self._for(min(claimed) / 1000)}"
        if limit.rank:
            words += f"; {counted(limit.rank, 'task')} {'waits' if limit.rank == 1 else 'wait'} before it"
        words += "."
        wait = slot_wait(limit, self._facts.run_times, self._now)
        if wait is not None:
            words += f" By the usual run times its turn comes in about {format_duration(wait.total_seconds())}."
        return self._reason(
            ReasonCode.LIMIT_FULL,
            words,
            wait=wait,
            before=limit.rank,
            before_is_exact=True,
            limit=BlockingLimit(
                name=name,
                parameter=parameter,
                function=function,
                most=limit.most,
                in_use=limit.in_use,
                waiters=limit.waiters,
                holders=holders,
            ),
        )

    def _scheduled(self, task: TaskRecord, at_ms: float) -> Reason:
        wait = timedelta(milliseconds=at_ms - self._now)
        left = format_duration(wait.total_seconds())
        facts: dict[str, Any] = {"due": from_ms(at_ms), "wait": wait}
        delay = self._facts.delay
        if delay is not None and delay.kind == "blocked":
            words = f"A dependency of the task did not admit its run: it is asked again in {left}."
            return self._reason(ReasonCode.NOT_ADMITTED, words, **facts)
        if delay is not None and delay.kind == "requeue":
            words = f"A worker could not run the task and gave it back, as its log says: it is due again in {left}."
            return self._reason(ReasonCode.GIVEN_BACK, words, **facts)
        # A kind of delay that only a newer release knows is left out.
        if delay is not None and delay.kind in ("rate", "debounce"):
            return self._delayed(delay, left, facts)
        if task.attempt > 1:
            return self._retry(task, left, facts)
        words = f"The task is not due yet: it is due in {left}, at {from_ms(at_ms):%Y-%m-%d %H:%M:%S} UTC."
        return self._reason(ReasonCode.NOT_DUE, words, **facts)

    def _retry(self, task: TaskRecord, left: str, facts: dict[str, Any]) -> Reason:
        error = self._facts.last_error
        failed = f"failed ({shortened(error)})" if error else "has ended"
        words = f"Attempt {task.attempt - 1} {failed}, and attempt {task.attempt} is due in {left}."
        return self._reason(ReasonCode.RETRY_PENDING, words, error=error, **facts)

    def _delayed(self, delay: Delay, left: str, facts: dict[str, Any]) -> Reason:
        name, parameter, function = limit_names(delay.limit)
        on, per = _limit_words(name, parameter, function), timedelta(milliseconds=delay.ms)
        limit = BlockingLimit(name=name, parameter=parameter, function=function, most=delay.most, per=per)
        window = format_duration(per.total_seconds())
        if delay.kind == "rate":
            words = (
                f"The rate limit {on} ({counted(delay.most, 'run')} in {window}) delays the task for another {left}."
            )
            return self._reason(ReasonCode.RATE_LIMITED, words, limit=limit, **facts)
        words = f"The debounce {on} delays the task for another {left}: it runs when none has followed for {window}."
        return self._reason(ReasonCode.DEBOUNCED, words, limit=limit, **facts)

    def _suspect(self, task: TaskRecord, **facts: Any) -> Reason:
        suspect = self._facts.suspect
        assert suspect is not None
        died = f"Workers were lost {task.losses} times while they ran the task"
        if suspect.group_size > 1:
            words = f"{died}, so it waits for a worker that runs fewer such tasks"
        else:
            words = f"{died}, so it waits for a worker of its own"
        worker = shown_worker(suspect.reserved_by) if suspect.reserved_by else None
        if worker:
            words += f": worker {worker!r} has reserved it and finishes its other runs first"
        return self._reason(ReasonCode.SUSPECT, f"{words}.", losses=task.losses, worker=worker, **facts)

    # Rules of operators: strikes end tasks, pauses hold them

    def _struck(self, task: TaskRecord) -> Iterator[Reason]:
        strikes = self._docket.strike_list.in_effect
        rules = [s.call_repr() for s in strikes if s.parameter is None and s.function == task.function_name]
        if rules:
            words = f"The task is struck by {rules[0]}: while the strike is in force, a worker cancels it instead of running it."
            yield self._reason(ReasonCode.STRUCK, words, rule=rules[0])

    def _may_be_struck(self, task: TaskRecord) -> Iterator[Reason]:
        strikes = self._docket.strike_list.in_effect
        rules = [s for s in strikes if s.parameter is not None and s.function in (None, task.function_name)]
        if rules:
            those = "1 strike compares" if len(rules) == 1 else f"{len(rules):,} strikes compare"
            words = f"{those} arguments of the task, which only workers read: the task may be struck."
            yield self._reason(ReasonCode.MAY_BE_STRUCK, words, rule=rules[0].call_repr())

    def _held(self) -> Iterator[Reason]:
        hold = self._facts.hold
        if hold is None:
            return
        pause, place = self._docket.pause_store.open(hold[0]), hold[1]
        words = f"The task is held, because {pause} was paused {self._ago(hold[0].epoch / 1000)}"
        if pause.is_resuming:
            words = f"The task is held: {pause} is being resumed, and its tasks go on in order"
        words += f"; {counted(place, 'task')} {'is' if place == 1 else 'are'} before it."
        facts = {"before": place, "before_is_exact": True}
        yield self._reason(ReasonCode.HELD, words, rule=str(pause), since=pause.since, **facts)

    def _will_be_held(self) -> Iterator[Reason]:
        stored = self._facts.pause
        if stored is not None:
            pause = self._docket.pause_store.open(stored)
            words = f"The pause of {pause} holds the task as soon as a worker claims it."
            yield self._reason(ReasonCode.WILL_BE_HELD, words, rule=str(pause), since=pause.since)

    def _may_be_held(self) -> Iterator[Reason]:
        comparing = self._facts.number("comparing_pauses")
        if comparing:
            those = "1 pause compares" if comparing == 1 else f"{comparing:,} pauses compare"
            words = f"{those} arguments of the task, which only workers read: the task may be held."
            yield self._reason(ReasonCode.MAY_BE_HELD, words)

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
        if task.location not in (IN_FRONT, IN_STREAM):
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

    def _elsewhere(self, task: TaskRecord) -> Reason:
        """The reason for a location that has no words of its own here."""
        at_ms = self._facts.time_ms("at")
        code = ReasonCode.NOT_ADMITTED if at_ms is None else ReasonCode.NOT_DUE
        words = f"The task is {words_of(place_of(task, is_running=False)).now}."
        return self._reason(code, words, due=None if at_ms is None else from_ms(at_ms))

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
