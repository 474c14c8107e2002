"""`docket top`"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.live import Live

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json, duration, positive
from docket.cli.support.output import console, is_terminal, printable, write_json
from docket.cli.support.terminal import quitting
from docket.cli.top_screen import TopScreen
from docket.docket import Docket
from docket.inspection.live import LiveState, Observer
from docket.inspection.statistics import failing
from docket.model.places import RARE_PLACES, UNFINISHED_PLACES, Place, words_of

app: typer.Typer = typer.Typer(add_completion=False)

Interval = Annotated[
    timedelta,
    typer.Option(
        "--interval",
        "-i",
        parser=duration,
        envvar="DOCKET_TOP_INTERVAL",
        metavar="DURATION",
        show_default="1s",
        help="The time between two refreshes.",
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        "--count",
        "-n",
        parser=positive,
        envvar="DOCKET_TOP_COUNT",
        metavar="NUMBER",
        help="Stop after this many refreshes.",
    ),
]


@app.command()
@on_docket
def top(
    docket: Docket,
    interval: Interval = timedelta(seconds=1),
    count: Count = None,
    json: Json = False,
) -> None:
    """Watch a docket live: waiting and running tasks, rates, failures.

    Press q to quit. In a pipe, the command writes one line for each refresh.
    """
    if interval < timedelta(milliseconds=50):
        raise typer.BadParameter("it must be at least 50ms", param_hint="'--interval'")
    run(_top(docket, interval.total_seconds(), count, json))


async def _top(docket: Docket, interval: float, count: int | None, as_json: bool) -> None:
    async with opened(docket):
        observer = Observer(docket)
        async with observer.listening():
            await observer.refresh()
            stopped = asyncio.Event()
            with quitting(stopped.set):
                if as_json or not is_terminal():
                    await _lines(observer, stopped, interval, count, as_json)
                else:
                    await _screen(docket, observer, stopped, interval, count)


async def _screen(
    docket: Docket, observer: Observer, stopped: asyncio.Event, interval: float, count: int | None
) -> None:
    server = docket.server
    title = printable(f"docket {docket.name!r} at {server.shown_url} ({server.engine_name} {server.engine_version})")
    view = TopScreen(title, observer.state, "q: quit")
    with Live(view, console=console(), screen=True, auto_refresh=False) as live:
        async for _ in _states(observer, stopped, interval, count):
            live.refresh()


async def _lines(observer: Observer, stopped: asyncio.Event, interval: float, count: int | None, as_json: bool) -> None:
    async for state in _states(observer, stopped, interval, count):
        if as_json:
            write_json(_facts(state))
        else:
            typer.echo(_line(state))


async def _states(
    observer: Observer, stopped: asyncio.Event, interval: float, count: int | None
) -> AsyncGenerator[LiveState]:
    """Yields the state of the docket, now and after every interval."""
    shown = 0
    while not stopped.is_set():
        yield observer.state
        shown += 1
        if shown == count:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), interval)
            return
        await observer.refresh()


# Null while the server does not answer.
_READ_FACTS = (
    *(words_of(place).json for place in UNFINISHED_PLACES),
    *("dead_letters", "unknown_functions", "recently_retried", "recently_failed", "failing"),
)


def _facts(state: LiveState) -> dict[str, Any]:
    census, rates = state.census, state.rates
    facts: dict[str, Any] = {"at": state.now.isoformat(), "trouble": state.trouble, "workers": len(state.workers)}
    facts |= dict.fromkeys(_READ_FACTS)
    if census is not None:
        facts |= {words_of(place).json: census.at(place) for place in UNFINISHED_PLACES}
        facts |= {"dead_letters": census.dead}
        facts |= {"unknown_functions": [function.name for function in state.unknown]}
    if state.recent is not None:
        facts |= {"recently_retried": state.recent.total.retried, "recently_failed": state.recent.total.failed}
        facts |= {"failing": {one.function: one.failures for one in failing(state.recent)}}
    facts["refused"] = state.refused
    if state.refused is not None:
        # Without events these would be zero, which would be wrong.
        return facts | {"done_rate": None, "failed_rate": None, "added_rate": None}
    return facts | {"done_rate": rates.ended, "failed_rate": rates.failed, "added_rate": rates.added}


# Rare places that have no words of their own in a line.
_OTHERS = tuple(place for place in RARE_PLACES if place not in (Place.PARKED, Place.UNKNOWN_FUNCTION))


def _line(state: LiveState) -> str:
    if state.trouble is not None:
        return printable(f"{datetime.now():%H:%M:%S}  no answer: {state.trouble}")
    census, rates = state.census, state.rates
    assert census is not None
    unknown = f"  unknown {census.unknown:,} ({_names(state)})" if census.unknown else ""
    unknown += f"  retried {state.recent.total.retried:,} in 5m" if state.recent and state.recent.total.retried else ""
    others = "".join(f"  {words_of(place).now} {census.at(place):,}" for place in _OTHERS if census.at(place))
    dead = f"  dead {census.dead:,}" if census.dead else ""
    measured = f"done {rates.ended:,.0f}/s  failed {rates.failed:,.0f}/s  added {rates.added:,.0f}/s"
    if state.refused is not None:
        measured = f"no rates: {state.refused}"
    return printable(
        f"{datetime.now():%H:%M:%S}  running {census.running:,}  ready {census.ready:,}  limited {census.parked:,}  "
        f"scheduled {census.scheduled:,}  workers {len(state.workers)}  {measured}{others}{dead}{unknown}"
    )


def _names(state: LiveState) -> str:
    return ", ".join(function.name for function in state.unknown)
