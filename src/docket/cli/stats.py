"""`docket stats`"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json, duration
from docket.cli.support.output import write_json, write_table
from docket.dependencies import format_duration
from docket.docket import Docket
from docket.inspection.statistics import FunctionStats, Stats
from docket.model.histograms import Histogram
from docket.model.states import EndingKind

app: typer.Typer = typer.Typer(add_completion=False)

Function = Annotated[
    str | None, typer.Argument(metavar="[FUNCTION]", help="The name of a task function. By default all.")
]
Since = Annotated[
    timedelta,
    typer.Option(
        "--since",
        parser=duration,
        envvar="DOCKET_STATS_SINCE",
        metavar="DURATION",
        show_default="1h",
        help="How far to look back: 15m, 3h, 30d. More than 3h is shown in whole hours.",
    ),
]
ByTime = Annotated[
    bool,
    typer.Option("--by-time", envvar="DOCKET_STATS_BY_TIME", help="Show a line for each minute or hour instead."),
]

# Kinds that are rare enough to share a column.
_OTHER_KINDS = tuple(
    kind
    for kind in EndingKind
    if kind
    not in (EndingKind.SUCCEEDED, EndingKind.FAILED, EndingKind.TIMED_OUT, EndingKind.RETRIED, EndingKind.CANCELLED)
)
_COLUMNS = ("Succeeded", "Failed", "Retried", "Cancelled", "Others", "Run p50", "p95", "p99", "Wait p50", "p95", "p99")


@app.command()
@on_docket
def stats(
    docket: Docket,
    function: Function = None,
    since: Since = timedelta(hours=1),
    by_time: ByTime = False,
    json: Json = False,
) -> None:
    """Show how runs ended, how long they took and how long their tasks had waited.

    The counts are exact. Times are estimated inside of buckets, each of which ends 1.6 times later
    than it begins.
    """
    found = run(_stats(docket, function, since))
    if json:
        write_json(_facts(docket.name, found))
        return
    title = f"docket {docket.name!r}, {found.since:%Y-%m-%d %H:%M} to {found.until:%Y-%m-%d %H:%M} UTC"
    if by_time:
        rows = [(f"{period.since:%Y-%m-%d %H:%M}", *_row(period.counts)) for period in found.periods]
    else:
        rows = [(one.function, *_row(one)) for one in found.functions]
    if len(rows) > 1:
        rows.append(("Total", *_row(found.total)))
    write_table(title, ("Time" if by_time else "Function", *_COLUMNS), rows)
    if function is not None and found.others:
        typer.echo(f"{found.others:,} endings of functions without counts of their own; some may be of this function")


async def _stats(docket: Docket, function: str | None, since: timedelta) -> Stats:
    async with opened(docket):
        return await docket.stats(function, since=since)


def _row(counts: FunctionStats) -> tuple[str, ...]:
    numbers = (counts.succeeded, counts.failed, counts.retried, counts.cancelled, counts.count(*_OTHER_KINDS))
    times = (*_quantiles(counts.run_time), *_quantiles(counts.waiting_time))
    return (
        *(f"{number:,}" for number in numbers),
        *("-" if seconds is None else format_duration(seconds) for seconds in times),
    )


def _quantiles(times: Histogram) -> tuple[float | None, float | None, float | None]:
    return times.p50, times.p95, times.p99


def _facts(docket: str, found: Stats) -> dict[str, Any]:
    return {
        "docket": docket,
        "since": found.since.isoformat(),
        "until": found.until.isoformat(),
        "resolution_seconds": found.resolution.total_seconds(),
        "functions": [_counts(one) for one in found.functions],
        "total": _counts(found.total),
        "periods": [{"since": period.since.isoformat(), **_counts(period.counts)} for period in found.periods],
        "others": found.others,
    }


def _counts(counts: FunctionStats) -> dict[str, Any]:
    return {
        "function": counts.function,
        "ended": counts.ended,
        "endings": {kind.value: number for kind, number in counts.endings.items()},
        "total_run_seconds": counts.total_run_time.total_seconds(),
        "run_seconds": _times(counts.run_time),
        "waiting_seconds": _times(counts.waiting_time),
    }


def _times(times: Histogram) -> dict[str, float | int | None]:
    return {"count": times.count, "p50": times.p50, "p95": times.p95, "p99": times.p99}
