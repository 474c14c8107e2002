"""The reasons of tasks that wait for a limit, for a time, or for a worker of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from docket.ledger.facts import Delay, FullLimit
from docket.model.times import format_duration, from_ms
from docket.storage.records import TaskRecord

from .forecasts import slot_wait
from .reason_writer import ReasonWriter, counted, shortened, shown_worker
from .reasons import BlockingLimit, Reason, ReasonCode, SlotHolder

_NAMED_HOLDERS = 3


class LimitReasons(ReasonWriter):
    """Reasons of tasks that are parked or in the schedule."""

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
