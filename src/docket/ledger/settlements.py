"""The three ways to settle a run, as the settle script reads them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from docket.model.states import STATE_NUMBERS, ExecutionState
from docket.storage.keys import text_bytes

_FINISH, _RESCHEDULE, _HAND_BACK = range(3)


class Answer(enum.IntEnum):
    LOST = 0
    DONE = 1
    KEPT = 2
    CANCELLED = 3


ANSWERS = tuple(Answer)


@dataclass(slots=True)
class Settlement:
    """One run's ending or next step, fenced by its epoch."""

    key: str
    epoch: int
    item: list[Any]
    # About how many bytes it takes in a script's arguments.
    weight: int = 60


def finish(
    key: str,
    epoch: int,
    state: ExecutionState,
    ttl_ms: int,
    tail: bytes,
    event: str,
    *,
    dead_letter: bool = False,
    has_progress: bool = True,
) -> Settlement:
    item = [
        text_bytes(key),
        epoch,
        _FINISH,
        STATE_NUMBERS[state],
        ttl_ms,
        tail,
        event,
        int(dead_letter),
        int(has_progress),
    ]
    return Settlement(key, epoch, item, len(key) + len(tail) + len(event) + 60)


def reschedule(
    key: str,
    epoch: int,
    *,
    attempt: int,
    delay_ms: float | None = None,
    due_ms: float | None = None,
    function_name: str | None = None,
    call: bytes | None = None,
) -> Settlement:
    """Runs again: after a delay on the server's clock, or at a time; with another call if one is given."""
    relative = due_ms is None
    ms = max(delay_ms or 0, 0) if relative else due_ms
    name = text_bytes(function_name) if function_name is not None else False
    item = [text_bytes(key), epoch, _RESCHEDULE, int(relative), ms, attempt, name, call or False]
    return Settlement(key, epoch, item, len(key) + len(call or b"") + 60)


def hand_back(
    key: str, epoch: int, *, delay_ms: float = 0, only_if_known: str | None = None, begun: bool = False
) -> Settlement:
    """Gives the task back; with `only_if_known`, only if another live worker knows that function.

    `begun`: its body has run, at least in part, so its next run is a redelivery.
    """
    name = text_bytes(only_if_known) if only_if_known is not None else False
    return Settlement(key, epoch, [text_bytes(key), epoch, _HAND_BACK, delay_ms, name, int(begun)])
