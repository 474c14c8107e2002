"""Why a task is not running: a code, one sentence, and the facts behind it (docs/design/why.md)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from docket.model.states import ExecutionState


class ReasonCode(enum.StrEnum):
    """The reason why a task does not run, or its end."""

    RUNNING = "running"
    WORKER_SILENT = "worker_silent"
    UNREADABLE = "unreadable"
    NEWER_RELEASE = "newer_release"
    STRUCK = "struck"
    HELD = "held"
    LIMIT_FULL = "limit_full"
    SUSPECT = "suspect"
    RATE_LIMITED = "rate_limited"
    DEBOUNCED = "debounced"
    NOT_ADMITTED = "not_admitted"
    GIVEN_BACK = "given_back"
    RETRY_PENDING = "retry_pending"
    NOT_DUE = "not_due"
    WILL_BE_HELD = "will_be_held"
    NO_WORKER = "no_worker"
    FUNCTION_UNKNOWN = "function_unknown"
    FUNCTION_BUSY = "function_busy"
    STAGING = "staging"
    DELIVERED = "delivered"
    UNREACHABLE = "unreachable"
    READY = "ready"
    WORKERS_RESERVED = "workers_reserved"
    MAY_BE_STRUCK = "may_be_struck"
    MAY_BE_HELD = "may_be_held"
    BURIED = "buried"
    DEAD_LETTER = "dead_letter"
    FINISHED = "finished"
    CHAIN_CANCELLED = "chain_cancelled"
    LEFT_BY_PYDOCKET = "left_by_pydocket"
    NEVER_HEARD_OF = "never_heard_of"


@dataclass(frozen=True, kw_only=True)
class SlotHolder:
    """A holder of a slot of a limit: the task, its worker, and since when. A slot that is reserved
    for a task has no worker; a run that was not found has no key."""

    key: str | None
    worker: str | None
    since: datetime | None


@dataclass(frozen=True, kw_only=True)
class BlockingLimit:
    """The limit that keeps a task waiting.

    `parameter` or `function` is what it counts. `most` is its number
    of slots, or of runs within `per`. `in_use`, `holders` and
    `waiters` are for concurrency limits; at most 20 holders are named.
    """

    name: str
    parameter: str | None
    function: str | None
    most: int
    per: timedelta | None = None
    in_use: int | None = None
    waiters: int | None = None
    holders: tuple[SlotHolder, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a task is not running, as data and as one sentence.

    A fact that does not belong to the code is None. `also` has the other causes: a task may be due
    tomorrow while no worker is alive.
    """

    code: ReasonCode
    sentence: str
    key: str
    # When this was true, by the server's clock.
    taken: datetime
    state: ExecutionState | None = None
    function: str | None = None
    attempt: int | None = None
    # When the task is, or was, ready to run.
    due: datetime | None = None
    # Since when it has been so.
    since: datetime | None = None
    # How long the task still waits for this cause, if that is known. An estimate for LIMIT_FULL.
    wait: timedelta | None = None
    # How many tasks come before this one. If `before_is_exact` is False there are more.
    before: int | None = None
    before_is_exact: bool | None = None
    worker: str | None = None
    # The live workers that take tasks, and how many of them know the function.
    workers: int | None = None
    workers_that_know: int | None = None
    losses: int | None = None
    limit: BlockingLimit | None = None
    # The strike or the pause that matches.
    rule: str | None = None
    error: str | None = None
    also: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    def as_json(self) -> dict[str, Any]:
        """The reason for programs: plain values, times in ISO 8601, durations in seconds. All
        fields are always there."""
        return as_plain(self)


def as_plain(value: Any) -> Any:
    """A dataclass as plain values: times in ISO 8601, durations in seconds."""
    if is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [as_plain(item) for item in cast("tuple[Any, ...] | list[Any]", value)]
    if isinstance(value, frozenset | set):
        return sorted(as_plain(item) for item in cast("frozenset[Any]", value))
    if isinstance(value, Mapping):
        found = cast("Mapping[Any, Any]", value)
        return {str(as_plain(name)): as_plain(item) for name, item in found.items()}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value
