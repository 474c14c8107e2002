"""`docket snapshot`"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import WrongUsage
from docket.cli.support.flags import Json, positive
from docket.cli.support.output import ago, printable, write_json, write_table
from docket.dependencies import format_duration
from docket.docket import Docket
from docket.inspection.snapshot import (
    STAGES,
    Cursor,
    SnapshotView,
    WorkerInfo,
    arguments_in_words,
    read_cursor,
    read_overview,
)
from docket.inspection.summaries import EndedTask
from docket.ledger.fleet import worker_name
from docket.ledger.queries import FoundTask, FunctionCount
from docket.ledger.tasks import UnknownFunction
from docket.model.places import RARE_PLACES, words_of
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.strikelist.pauses import Pause

app: typer.Typer = typer.Typer(add_completion=False)


class State(enum.StrEnum):
    RUNNING = "running"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


States = Annotated[
    list[State] | None,
    typer.Option(
        "--state",
        envvar="DOCKET_SNAPSHOT_STATE",
        case_sensitive=False,
        help="Show only tasks in this state, also finished ones. May be repeated.",
    ),
]
Function = Annotated[
    str | None,
    typer.Option(
        "--function", envvar="DOCKET_SNAPSHOT_FUNCTION", metavar="NAME", help="Show only tasks of this function."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="DOCKET_SNAPSHOT_KEY", metavar="PREFIX", help="Show only tasks whose key starts with this."
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        "-n",
        envvar="DOCKET_SNAPSHOT_LIMIT",
        parser=positive,
        metavar="NUMBER",
        help="Show about this many tasks.",
    ),
]
All = Annotated[bool, typer.Option("--all", envvar="DOCKET_SNAPSHOT_ALL", help="Show all tasks.")]
After = Annotated[
    str | None,
    typer.Option("--after", envvar="DOCKET_SNAPSHOT_AFTER", metavar="CURSOR", help="Continue after the previous page."),
]
Stats = Annotated[
    bool, typer.Option("--stats", envvar="DOCKET_SNAPSHOT_STATS", help="Also count the tasks of each function.")
]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--tasks", envvar="DOCKET_TASKS", hidden=True, help="Accepted for compatibility, without effect."),
]


@app.command()
@on_docket
def snapshot(
    docket: Docket,
    state: States = None,
    function: Function = None,
    key: Key = None,
    limit: Limit = 50,
    all: All = False,
    after: After = None,
    stats: Stats = False,
    json: Json = False,
    tasks: Tasks = None,
) -> None:
    """Show the tasks that wait and run, and the workers.

    Running tasks come first, then queued tasks, then scheduled tasks, each in the order of their
    due times. Of the arguments, those that the function marks as Logged are shown, else their size:
    workers alone decode them. With --state failed, completed or cancelled it shows finished tasks
    whose records have not expired.
    """
    states = [ExecutionState(s.value) for s in state] if state else list(STAGES)
    cursor = _cursor(after)
    view = run(_read(docket, states, None if all else limit, function, key, cursor, stats))
    if json:
        write_json(_as_json(docket.name, view))
    else:
        _show(docket.name, view)


def _cursor(text: str | None) -> Cursor | None:
    try:
        return None if text is None else read_cursor(text)
    except ValueError as error:
        raise WrongUsage(f"--after: {error}") from None


async def _read(
    docket: Docket,
    states: Sequence[ExecutionState],
    limit: int | None,
    function: str | None,
    key: str | None,
    after: Cursor | None,
    stats: bool,
) -> SnapshotView:
    async with opened(docket):
        return await read_overview(docket, states, limit, function=function, key_prefix=key, after=after, stats=stats)


def _show(name: str, view: SnapshotView) -> None:
    typer.echo(f"Docket {name!r} at {view.taken.astimezone():%Y-%m-%d %H:%M:%S}: {_in_words(view)}")
    if view.strikes:
        typer.echo(f"Struck: {', '.join(view.strikes)}")
    if view.pauses:
        typer.echo(printable(f"Paused: {', '.join(f'{pause} ({pause.held:,} held)' for pause in view.pauses)}"))
    for function in view.unknown:
        typer.echo(printable(_unknown(function, view.taken)))
    if view.listing.tasks:
        typer.echo("")
        columns = ("State", "Due", "Function", "Key", "Attempt", "Arguments", "Worker", "Running for")
        write_table("", columns, [_row(row, view.taken) for row in view.listing.tasks])
    if view.listing.ended:
        typer.echo("")
        columns = ("State", "Ended", "Function", "Key", "Attempt", "Worker", "Ran for", "Error")
        write_table("", columns, [_ended_row(task, view.taken) for task in view.listing.ended])
    if view.listing.following is not None:
        typer.echo(f"\nMore tasks: --after {view.listing.following.text()}")
    if view.stats:
        typer.echo("")
        columns = ("Function", "Running", "Queued", "Scheduled", "Earliest")
        write_table(
            "", columns, [_stat(function, counts, view.taken) for function, counts in sorted(view.stats.items())]
        )
    if view.workers:
        typer.echo("")
        rows = [(w.name, ago(w.last_seen, view.taken), ", ".join(sorted(w.tasks))) for w in view.workers]
        write_table("", ("Worker", "Seen", "Tasks"), rows)


def _in_words(view: SnapshotView) -> str:
    census = view.census
    parts = [
        f"{census.running:,} running",
        f"{census.queued:,} queued",
        f"{census.scheduled:,} scheduled",
    ]
    parts[1] += "".join(f" ({census.at(place):,} {words_of(place).now})" for place in RARE_PLACES if census.at(place))
    if census.dead:
        parts.append(f"{census.dead:,} dead letters")
    parts.append(f"{len(view.workers)} {'worker' if len(view.workers) == 1 else 'workers'}")
    return ", ".join(parts)


def _unknown(function: UnknownFunction, now: datetime) -> str:
    tasks = f"{function.tasks:,} {'task' if function.tasks == 1 else 'tasks'}"
    reason = "the workers that know it are busy" if function.is_known else "no live worker knows it"
    first = ago(from_ms(function.since_ms), now)
    return f"Unknown function {function.name!r}: {tasks} waiting, the first since {first}; {reason}"


def _row(row: FoundTask, now: datetime) -> tuple[str, ...]:
    task, due = row.task, from_ms(row.due_ms)
    worker = worker_name(row.run.worker) if row.run else ""
    running_for = format_duration((now - from_ms(row.run.started_ms)).total_seconds()) if row.run else ""
    return (
        "held" if row.is_held else row.state.value,
        ago(due, now),
        task.function_name,
        row.key,
        str(task.attempt),
        arguments_in_words(row) or _size(row.call_size),
        worker,
        running_for,
    )


def _ended_row(task: EndedTask, now: datetime) -> tuple[str, ...]:
    ran = "" if task.started_at is None else format_duration((task.completed_at - task.started_at).total_seconds())
    ended, attempt = ago(task.completed_at, now), str(task.attempt)
    return task.state.value, ended, task.function, task.key, attempt, task.worker or "", ran, task.error or ""


def _size(count: int) -> str:
    return f"{count} B" if count < 10_000 else f"{count / 1000:,.0f} kB"


def _stat(function: str, counts: FunctionCount, now: datetime) -> tuple[str, ...]:
    numbers = (f"{n:,}" for n in (counts.running, counts.queued, counts.scheduled))
    return function, *numbers, ago(from_ms(counts.earliest_due_ms), now)


def _as_json(name: str, view: SnapshotView) -> dict[str, Any]:
    """The view for programs: plain values, times in ISO 8601."""
    census = view.census
    found: dict[str, Any] = {
        "docket": name,
        "taken": view.taken.isoformat(),
        "counts": {
            "running": census.running,
            "queued": census.queued,
            "scheduled": census.scheduled,
            **{words_of(place).json: census.at(place) for place in RARE_PLACES},
            "dead_letters": census.dead,
        },
        "strikes": view.strikes,
        "pauses": [_pause_json(pause) for pause in view.pauses],
        "unknown_functions": [_unknown_json(function) for function in view.unknown],
        "tasks": [*map(_task_json, view.listing.tasks), *map(_ended_json, view.listing.ended)],
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


def _task_json(row: FoundTask) -> dict[str, Any]:
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
