"""The functions of a docket: how they are declared,
how their runs end, and when chains run next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, cast
from zoneinfo import ZoneInfo

from docket.dependencies.cron import Cron
from docket.execution.context import DocketContext
from docket.ledger.statistics import OTHERS, Row
from docket.model.times import duration_ms, to_ms
from docket.storage.schema.statistics import MINUTE_MS

from .census import read_census
from .statistics import FunctionStats, function_stats

DEFAULT_LENGTH = timedelta(hours=1)
# If there are more unfinished tasks than the first number, a random sample is read, of the size of
# the second.
_COUNTED, _SAMPLE = 2_000, 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """A dependency in the signature of a function: its parameter, its class, and how it reads, for
    instance `Retry(attempts=3)`. `is_limit` and `is_behaviour` are False for other dependencies."""

    parameter: str
    name: str
    text: str
    is_behaviour: bool
    is_limit: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionDeclaration:
    """A function as a worker has registered it."""

    # "async", "thread" or "process".
    runs_in: str
    module: str
    # The first line of its docstring.
    summary: str | None
    # Its parameters without behaviours, as they are written, and those that are `Logged`.
    parameters: tuple[str, ...]
    logged: tuple[str, ...]
    behaviours: tuple[Behaviour, ...]
    # Of an automatic task, and of a task that runs again and again.
    is_automatic: bool
    cron: str | None
    timezone: str | None
    every: timedelta | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskShare:
    """How many unfinished tasks a function has. If `is_exact` is False they were estimated from a
    random sample."""

    running: int
    queued: int
    scheduled: int
    is_exact: bool


_NO_TASKS = TaskShare(running=0, queued=0, scheduled=0, is_exact=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionView:
    """One function. `workers` is how many live workers know it; 0 for one that only has tasks or
    statistics. `ended` and `failed` are per minute, the earliest first."""

    name: str
    workers: int
    stats: FunctionStats
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    tasks: TaskShare
    declaration: FunctionDeclaration | None

    @property
    def failure_share(self) -> float | None:
        """The share of runs that went wrong, or None if none ended."""
        return self.stats.failures / self.stats.ended if self.stats.ended else None


async def read_functions(docket: DocketContext, *, length: timedelta = DEFAULT_LENGTH) -> tuple[FunctionView, ...]:
    """All functions that a live worker knows, or that have statistics in the last `length` (at most
    three hours), by name."""
    return await _read(docket, length, None)


async def read_function(docket: DocketContext, name: str, *, length: timedelta = DEFAULT_LENGTH) -> FunctionView | None:
    """One function, or None if nobody has heard of it."""
    found = await _read(docket, length, name)
    return next((view for view in found if view.name == name), None)


async def _read(docket: DocketContext, length: timedelta, function: str | None) -> tuple[FunctionView, ...]:
    if not timedelta(minutes=1) <= length <= timedelta(hours=3):
        raise ValueError(f"length={length}: it must be from one minute to three hours")
    last = int(to_ms(docket.now()) // MINUTE_MS)
    first = last - int(duration_ms(length) // MINUTE_MS) + 1
    rows: dict[str, dict[int, Row]] = {}
    async for stored in docket.ledger.statistics.rows(first, last, function=function):
        if stored.function != OTHERS or function is None:
            rows.setdefault(stored.function, {}).setdefault(stored.number, Row()).add(stored.row)
    known: dict[str, int] = {}
    for worker in await docket.ledger.fleet.workers():
        for name in worker.functions:
            known[name] = known.get(name, 0) + 1
    shares = await _read_shares(docket)
    heard = {*rows, *known, *shares}
    names = sorted(heard if function is None else {function} & heard)
    declared = await docket.ledger.fleet.declarations(names)
    return tuple(
        _view(
            name, known.get(name, 0), rows.get(name, {}), first, last, shares.get(name, _NO_TASKS), declared.get(name)
        )
        for name in names
    )


async def _read_shares(docket: DocketContext) -> dict[str, TaskShare]:
    """The unfinished tasks by function: all of them if they are few, else a random sample."""
    if (await read_census(docket)).unfinished <= _COUNTED:
        counts, scale = await docket.ledger.queries.count_by_function(), None
    else:
        counts, read, total = await docket.ledger.queries.sample_by_function(_SAMPLE)
        scale = total / max(read, 1)
    return {
        name: TaskShare(
            running=_scaled(count.running, scale),
            queued=_scaled(count.queued, scale),
            scheduled=_scaled(count.scheduled, scale),
            is_exact=scale is None,
        )
        for name, count in counts.items()
    }


def _scaled(count: int, scale: float | None) -> int:
    return count if scale is None else round(count * scale)


def _view(
    name: str,
    workers: int,
    minutes: dict[int, Row],
    first: int,
    last: int,
    tasks: TaskShare,
    declared: dict[str, Any] | None,
) -> FunctionView:
    total = Row()
    for row in minutes.values():
        total.merge(row)
    per_minute = [function_stats(name, minutes.get(number, Row())) for number in range(first, last + 1)]
    return FunctionView(
        name=name,
        workers=workers,
        stats=function_stats(name, total),
        ended=tuple(one.ended for one in per_minute),
        failed=tuple(one.failures for one in per_minute),
        tasks=tasks,
        declaration=as_declaration(declared) if declared else None,
    )


def as_declaration(found: dict[str, Any]) -> FunctionDeclaration:
    """A declaration as it is stored. Anybody may have written it, so every value is checked."""
    every = found.get("every")
    is_interval = isinstance(every, int | float) and not isinstance(every, bool) and 0 <= every < 1e9
    return FunctionDeclaration(
        runs_in=_text(found.get("runs_in")) or "async",
        module=_text(found.get("module")) or "",
        summary=_text(found.get("summary")),
        parameters=_texts(found.get("parameters")),
        logged=_texts(found.get("logged")),
        behaviours=tuple(_behaviours(found.get("behaviours"))),
        is_automatic=found.get("automatic") is True,
        cron=_text(found.get("cron")),
        timezone=_text(found.get("timezone")),
        every=timedelta(seconds=float(cast("float", every))) if is_interval else None,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))


def _behaviours(value: object) -> Iterator[Behaviour]:
    for item in cast("list[object]", value) if isinstance(value, list) else []:
        fields = cast("list[object]", item) if isinstance(item, list) else []
        if len(fields) >= 5 and all(isinstance(text, str) for text in fields[:3]):
            parameter, name, text = (str(field) for field in fields[:3])
            yield Behaviour(
                parameter=parameter,
                name=name,
                text=text,
                is_behaviour=fields[3] is True,
                is_limit=fields[4] is True,
            )


def following_run(declared: dict[str, Any], due: datetime, now: datetime) -> datetime | None:
    """The run after the one that is due then, as the function is declared: the next time of its
    cron expression, or an interval later. None if the declaration does not say it."""
    if not declared:
        return None
    declaration = as_declaration(declared)
    if declaration.cron is not None:
        return _next_cron(declaration, due)
    if declaration.every:
        return _after(due, declaration.every, now)
    return None


def _next_cron(declaration: FunctionDeclaration, due: datetime) -> datetime | None:
    zone = _zone(declaration.timezone)
    if zone is None or declaration.cron is None:
        return None
    try:
        return Cron(declaration.cron, tz=zone).slot_after(due).astimezone(UTC)
    except (ValueError, OverflowError):
        # Anybody may have written the expression.
        return None


def _zone(name: str | None) -> tzinfo | None:
    if name in (None, "UTC"):
        return UTC
    try:
        return ZoneInfo(str(name))
    except (KeyError, ValueError, OSError):
        return None


def _after(due: datetime, every: timedelta, now: datetime) -> datetime | None:
    try:
        return max(due, now) + every
    except OverflowError:
        return None
