"""One view of a docket: counts, a page of tasks, workers, strikes and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from docket.ledger.queries import FunctionCount, TaskRow, count_by_function
from docket.ledger.unknown_functions import UnknownFunction, unknown_functions
from docket.ledger.values import TaskCounts
from docket.ledger.workers import worker_name
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.strikelist.pauses import Pause

from .ended_tasks import EndedTask
from .listing import Cursor, Listing, list_tasks
from .snapshot import WorkerInfo, read_workers

if TYPE_CHECKING:
    from docket.docket import Docket


@dataclass
class View:
    """The state of a docket at one moment. `stats` counts the
    tasks of each function. It is None if it was not requested."""

    taken: datetime
    census: TaskCounts
    listing: Listing
    workers: Sequence[WorkerInfo]
    strikes: list[str]
    stats: dict[str, FunctionCount] | None
    unknown: list[UnknownFunction]
    pauses: list[Pause]


async def read_view(
    docket: Docket,
    states: Sequence[ExecutionState],
    limit: int | None,
    *,
    function: str | None = None,
    key_prefix: str | None = None,
    after: Cursor | None = None,
    stats: bool = False,
) -> View:
    """Reads a page of about `limit` tasks (all tasks without
    a limit), the counts, the workers, the strikes and the pauses."""
    ledger = docket.ledger
    listing, census, workers, pauses = await asyncio.gather(
        list_tasks(ledger, states, limit, function=function, key_prefix=key_prefix, after=after),
        ledger.count(),
        read_workers(ledger),
        docket.pauses(),
    )
    counts = await count_by_function(ledger) if stats else None
    unknown = await unknown_functions(ledger) if census.unknown else []
    strikes = sorted(strike.call_repr() for strike in docket.strike_list.in_effect)
    return View(from_ms(census.server_ms), census, listing, workers, strikes, counts, unknown, pauses)


def as_json(name: str, view: View) -> dict[str, Any]:
    """The view for programs: plain values, times in ISO 8601."""
    census = view.census
    found: dict[str, Any] = {
        "docket": name,
        "taken": view.taken.isoformat(),
        "counts": {
            "running": census.running,
            "queued": census.queued,
            "scheduled": census.scheduled,
            "waiting_for_a_limit": census.parked,
            "unknown_function": census.unknown,
            "held": census.held,
            "dead_letters": census.dead,
        },
        "strikes": view.strikes,
        "pauses": [_pause_json(pause) for pause in view.pauses],
        "unknown_functions": [_unknown_json(function) for function in view.unknown],
        "tasks": [*map(_task_json, view.listing.rows), *map(_ended_json, view.listing.ended)],
        "next": view.listing.following.text() if view.listing.following is not None else None,
        "workers": [_worker_json(worker) for worker in view.workers],
    }
    if view.stats is not None:
        found["stats"] = {
            function: {
                "running": counts.running,
                "queued": counts.queued,
                "scheduled": counts.scheduled,
                "held": counts.held,
            }
            for function, counts in view.stats.items()
        }
    return found


def _unknown_json(function: UnknownFunction) -> dict[str, Any]:
    return {
        "name": function.name,
        "since": from_ms(function.since_ms).isoformat(),
        "tasks": function.tasks,
        "known": function.is_known,
    }


def _pause_json(pause: Pause) -> dict[str, Any]:
    return {"id": pause.id, "pause": str(pause), "held": pause.held, "resuming": pause.is_resuming}


def _worker_json(worker: WorkerInfo) -> dict[str, Any]:
    return {"name": worker.name, "last_seen": worker.last_seen.isoformat(), "tasks": sorted(worker.tasks)}


def _task_json(row: TaskRow) -> dict[str, Any]:
    task = row.task
    return {
        "key": row.key,
        "function": task.function_name,
        "state": row.state.value,
        "held": row.is_held,
        "when": from_ms(row.due_ms).isoformat(),
        "attempt": task.attempt,
        "arguments": row.shown_arguments,
        "arguments_bytes": row.call_size,
        "worker": worker_name(row.run.worker) if row.run else None,
        "started_at": from_ms(row.run.started_ms).isoformat() if row.run else None,
        "completed_at": None,
        "error": None,
    }


def _ended_json(task: EndedTask) -> dict[str, Any]:
    return {
        "key": task.key,
        "function": task.function,
        "state": task.state.value,
        "held": False,
        "when": task.due.isoformat(),
        "attempt": task.attempt,
        "arguments": task.arguments,
        "arguments_bytes": task.arguments_bytes,
        "worker": task.worker,
        "started_at": task.started_at.isoformat() if task.started_at is not None else None,
        "completed_at": task.completed_at.isoformat(),
        "error": task.error,
    }
