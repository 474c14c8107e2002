"""Changes of tasks: cancel, run now, skip, add."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from docket.errors import EmptyFilter, TaskNotFound
from docket.execution import Disposition
from docket.inspection.task_filters import GROUPS, Place, TaskFilter, read_filter
from docket.inspection.task_pages import MOST_TASKS, find_page
from docket.web.guards import Role
from docket.web.inputs import flag, moment, seconds, text, texts
from docket.web.inputs import keys as encoded

from .action import Action, Done, Order, counted
from .values import json_list, json_object, typed_call

_AT_ONCE = 100
# The time that one page of tasks may take. People wait for the whole change anyway.
_PATIENCE = timedelta(seconds=2)
_WAITING = GROUPS["waiting"]
# The answers of the ledger to a cancel.
_CANCELLED, _ASKED = 1, 2


async def cancel(order: Order, *, keys: list[str]) -> Done:
    counts = await _cancel_keys(order, list(dict.fromkeys(keys)))
    if not counts.cancelled and not counts.asked:
        raise TaskNotFound(f"there is no unfinished task {', '.join(map(repr, keys[:5]))}")
    return counts.done()


async def cancel_matching(order: Order, *, filter: str | None = None, everything: bool = False) -> Done:
    """All tasks that match, also running ones. New tasks that come in the meantime may stay."""
    chosen = read_filter(filter or "")
    if any(place.is_finished for place in chosen.places):
        raise ValueError("state: only unfinished tasks can be cancelled")
    if chosen.is_empty and not everything:
        raise EmptyFilter("cancelling without a filter concerns all tasks: say so with everything=true")
    if not chosen.is_empty and everything:
        raise ValueError("everything=true takes no filter")
    counts = Counts()
    if _is_simple(chosen) and chosen.places >= _WAITING:
        counts.cancelled = await order.docket.clear(function=chosen.function, key_prefix=chosen.key_prefix)
        chosen = _only(chosen, Place.RUNNING)
        if chosen is None:
            return counts.done()
    cursor: str | None = None
    # Cancelled tasks leave their places while the pages are read, so a later round may find more.
    for _ in range(3):
        found = 0
        while True:
            page = await find_page(order.docket, chosen, cursor=cursor, size=MOST_TASKS, patience=_PATIENCE)
            keys = [task.key for task in page.tasks if task.key not in counts.asked_keys]
            found += len(keys)
            counts.add(await _cancel_keys(order, keys))
            order.job.show(counts.cancelled + counts.asked, max(page.total or 0, counts.cancelled + counts.asked))
            cursor = page.cursor
            if cursor is None:
                break
        if not found:
            break
    return counts.done()


def _is_simple(filter: TaskFilter) -> bool:
    """Whether the server can select the waiting tasks by itself."""
    return filter == TaskFilter(places=filter.places, function=filter.function, key_prefix=filter.key_prefix)


def _only(filter: TaskFilter, place: Place) -> TaskFilter | None:
    if place not in filter.places:
        return None
    return TaskFilter(places=frozenset((place,)), function=filter.function, key_prefix=filter.key_prefix)


class Counts:
    """How many tasks were cancelled, and how many workers were asked to cancel their run."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.asked_keys: set[str] = set()
        self.not_found: list[str] = []

    @property
    def asked(self) -> int:
        return len(self.asked_keys)

    def add(self, other: Counts) -> None:
        self.cancelled += other.cancelled
        self.asked_keys |= other.asked_keys

    def done(self) -> Done:
        words = [f"Cancelled {counted(self.cancelled, 'waiting task')}"]
        if self.asked:
            words.append(f"asked the workers of {counted(self.asked, 'running task')}")
        if self.not_found:
            words.append(
                f"{self.not_found[0]!r} is not there" if len(self.not_found) == 1 else _missing(self.not_found)
            )
        details = {"cancelled": self.cancelled, "asked": self.asked, "not_found": self.not_found}
        return Done(sentence="; ".join(words) + ".", count=self.cancelled + self.asked, details=details)


def _missing(keys: Sequence[str]) -> str:
    return f"{len(keys):,} of the tasks are not there"


async def _cancel_keys(order: Order, keys: Sequence[str]) -> Counts:
    counts = Counts()
    for first in range(0, len(keys), _AT_ONCE):
        some = keys[first : first + _AT_ONCE]
        replies = await asyncio.gather(*(order.docket.ledger.cancel(key) for key in some))
        counts.cancelled += replies.count(_CANCELLED)
        for key, reply in zip(some, replies, strict=True):
            if reply == _ASKED:
                counts.asked_keys.add(key)
            elif reply != _CANCELLED:
                counts.not_found.append(key)
    return counts


async def add(
    order: Order,
    *,
    function: str,
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    key: str | None = None,
    when: datetime | None = None,
    delay: timedelta | None = None,
) -> Done:
    docket = order.docket
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
    return Done(sentence=sentence, count=count, details=details)


TASK_ACTIONS: tuple[Action, ...] = (
    Action(
        "tasks/cancel",
        "cancel",
        "Cancel tasks by their keys",
        Role.OPERATOR,
        (encoded(texts("keys", "The keys of the tasks.", required=True)),),
        cancel,
    ),
    Action(
        "tasks/cancel-matching",
        "cancel_matching",
        "Cancel all tasks that match a filter",
        Role.ADMIN,
        (
            text("filter", "A filter, as in the list of tasks: function:send_mail state:waiting prefix:order-"),
            flag("everything", "All unfinished tasks: has to be said if there is no filter."),
        ),
        cancel_matching,
    ),
    Action(
        "tasks/add",
        "add",
        "Add a task",
        Role.OPERATOR,
        (
            text("function", "The name of the function. This dashboard has to know it.", required=True),
            json_list("args", "Positional arguments, as JSON."),
            json_object("kwargs", "Arguments by name, as JSON."),
            encoded(text("key", "The key. By default a new unique key.")),
            moment("when", "When the task is due. By default now."),
            seconds("delay", "The task is due after so many seconds."),
        ),
        add,
    ),
)
