"""Changes of tasks: cancel, run now, skip, another time, add."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from docket.errors import TaskNotFound
from docket.execution import Disposition
from docket.inspection.filters import read_filter
from docket.model.places import Place
from docket.operator_verbs import OperatorVerbs
from docket.web.guards import Role
from docket.web.problems import Refused

from .action import Action, ActionResult, ChangeRequest, counted
from .fields import fields
from .values import typed_call

_AT_ONCE = 100
# How long a part of a batch takes before its progress is shown.
_PATIENCE = timedelta(seconds=1)
# The answers of the ledger to a cancel.
_CANCELLED, _ASKED = 1, 2


async def cancel(request: ChangeRequest, *, keys: list[str]) -> ActionResult:
    counts = await _cancel_keys(request, list(dict.fromkeys(keys)))
    if not counts.cancelled and not counts.asked:
        raise TaskNotFound(f"there is no unfinished task {', '.join(map(repr, keys[:5]))}")
    return counts.done()


async def cancel_matching(
    request: ChangeRequest, *, filter: str | None = None, running: bool = False, everything: bool = False
) -> ActionResult:
    """All waiting tasks that match, and with `running` also the running ones."""
    chosen = read_filter(filter or "")
    if any(place.is_finished for place in chosen.places):
        raise ValueError("state: only unfinished tasks can be cancelled")
    if not chosen.is_empty and everything:
        raise ValueError("everything=true takes no filter")
    running = running or chosen.places == frozenset((Place.RUNNING,))
    cancelled = requested = skipped = 0
    cursor: str | None = None
    while True:
        report = await request.docket.cancel_matching(
            chosen, running=running, everything=everything, cursor=cursor, patience=_PATIENCE
        )
        cancelled, requested = cancelled + report.cancelled, requested + report.requested
        skipped, cursor = skipped + report.skipped, report.cursor
        if cursor is None:
            break
        request.job.show(report.examined, max(report.total or 0, report.examined))
    words = [f"Cancelled {counted(cancelled, 'waiting task')}"]
    if requested:
        words.append(f"asked the workers of {counted(requested, 'running task')}")
    if skipped:
        words.append(f"{skipped:,} began to run, ended or were replaced in the meantime")
    details = {"cancelled": cancelled, "asked": requested, "skipped": skipped}
    return ActionResult(sentence="; ".join(words) + ".", count=cancelled + requested, details=details)


async def run_now(request: ChangeRequest, *, keys: list[str], due: datetime | None = None) -> ActionResult:
    unique = list(dict.fromkeys(keys))
    if due is not None and len(unique) > 1:
        raise ValueError("due goes with one key")
    moved = [key for key in unique if await request.docket.run_now(key, due=due)]
    if not moved:
        raise await _not_scheduled(request, unique[0])
    rest = len(unique) - len(moved)
    words = f"{counted(len(moved), 'task runs', 'tasks run')} now" + (f"; {rest:,} not in the schedule" if rest else "")
    return ActionResult(sentence=f"{words}.", count=len(moved), details={"moved": moved})


async def _skipped(request: ChangeRequest, when: datetime | None, *, key: str, **_: Any) -> ActionResult:
    if when is None:
        raise await _not_scheduled(request, key)
    sentence = f"Skipped the next run of {key!r}: it runs at {when:%Y-%m-%d %H:%M:%S} UTC."
    return ActionResult(sentence=sentence, count=1, details={"when": when})


async def _rescheduled(request: ChangeRequest, is_moved: bool, *, key: str, when: datetime, **_: Any) -> ActionResult:
    if not is_moved:
        raise await _not_scheduled(request, key)
    sentence = f"Task {key!r} is due at {when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC."
    return ActionResult(sentence=sentence, count=1, details={"when": when})


async def _not_scheduled(request: ChangeRequest, key: str) -> Exception:
    """Why a task has no other time now."""
    reason = await request.docket.why(key)
    if reason.state is None or reason.state.finished:
        return TaskNotFound(f"there is no unfinished task {key!r}")
    detail = f"Task {key!r} is not in the schedule, or its time has changed. {reason.sentence}"
    return Refused(409, "not-scheduled", "The task is not scheduled", detail)


class CancelCounts:
    """How many tasks were cancelled, and how many workers were asked to cancel their run."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.asked_keys: set[str] = set()
        self.not_found: list[str] = []

    @property
    def asked(self) -> int:
        return len(self.asked_keys)

    def done(self) -> ActionResult:
        words = [f"Cancelled {counted(self.cancelled, 'waiting task')}"]
        if self.asked:
            words.append(f"asked the workers of {counted(self.asked, 'running task')}")
        if self.not_found:
            words.append(
                f"{self.not_found[0]!r} is not there" if len(self.not_found) == 1 else _missing(self.not_found)
            )
        details = {"cancelled": self.cancelled, "asked": self.asked, "not_found": self.not_found}
        return ActionResult(sentence="; ".join(words) + ".", count=self.cancelled + self.asked, details=details)


def _missing(keys: Sequence[str]) -> str:
    return f"{len(keys):,} of the tasks are not there"


async def _cancel_keys(request: ChangeRequest, keys: Sequence[str]) -> CancelCounts:
    counts = CancelCounts()
    for first in range(0, len(keys), _AT_ONCE):
        some = keys[first : first + _AT_ONCE]
        replies = await asyncio.gather(*(request.docket.ledger.tasks.cancel(key) for key in some))
        counts.cancelled += replies.count(_CANCELLED)
        for key, reply in zip(some, replies, strict=True):
            if reply == _ASKED:
                counts.asked_keys.add(key)
            elif reply != _CANCELLED:
                counts.not_found.append(key)
    return counts


async def add(
    request: ChangeRequest,
    *,
    function: str,
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    key: str | None = None,
    when: datetime | None = None,
    delay: timedelta | None = None,
) -> ActionResult:
    docket = request.docket
    if when is not None and delay is not None:
        raise ValueError("when and delay: give one of them")
    positional, named = typed_call(docket, function, args or [], kwargs or {})
    due = docket.now() + delay if delay is not None else when
    execution = await docket.add(function, due, key)(*positional, **named)
    words = {
        Disposition.SCHEDULED: f"Added task {execution.key!r}.",
        Disposition.STRUCK: f"A strike blocks task {execution.key!r}: it was not added.",
    }
    sentence = words.get(execution.disposition, f"There is an unfinished task {execution.key!r}: nothing was added.")
    details = {"key": execution.key, "disposition": execution.disposition.value}
    count = 1 if execution.disposition is Disposition.SCHEDULED else 0
    return ActionResult(sentence=sentence, count=count, details=details)


_KEY, _KEYS = "The key of the task.", "The keys of the tasks."
_DUE = "The due time that you have seen: nothing happens if the task has another one by now."

TASK_ACTIONS: tuple[Action, ...] = (
    Action("tasks/cancel", "cancel", "Cancel tasks by their keys", Role.OPERATOR, fields(cancel, keys=_KEYS), cancel),
    Action(
        "tasks/cancel-matching",
        "cancel_matching",
        "Cancel all tasks that match a filter",
        Role.ADMIN,
        fields(
            cancel_matching,
            filter="A filter, as in the list of tasks: function:send_mail state:waiting prefix:order-",
            running="Also running tasks: their workers are asked.",
            everything="All tasks: has to be said if there is no filter.",
        ),
        cancel_matching,
    ),
    Action(
        "tasks/run-now",
        "run_now",
        "Run scheduled tasks now",
        Role.OPERATOR,
        fields(run_now, keys=_KEYS, due=_DUE),
        run_now,
    ),
    Action.of_verb(
        "tasks/skip",
        OperatorVerbs.skip,
        "Skip the next run of a perpetual or cron task",
        Role.OPERATOR,
        {"key": _KEY, "due": _DUE},
        _skipped,
    ),
    Action.of_verb(
        "tasks/reschedule",
        OperatorVerbs.reschedule,
        "Move a scheduled task to another time",
        Role.OPERATOR,
        {"key": _KEY, "when": "The new time.", "due": _DUE},
        _rescheduled,
    ),
    Action(
        "tasks/add",
        "add",
        "Add a task",
        Role.OPERATOR,
        fields(
            add,
            function="The name of the function. This dashboard has to know it.",
            args="Positional arguments, as JSON.",
            kwargs="Arguments by name, as JSON.",
            key="The key. By default a new unique key.",
            when="When the task is due. By default now.",
            delay="The task is due after so many seconds.",
        ),
        add,
    ),
)
