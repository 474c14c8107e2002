"""`docket dead ls|show|retry|edit|discard`"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from json import JSONDecodeError, loads
from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import CommandFailed, WrongUsage
from docket.cli.support.flags import Json, duration, positive, tasks_option
from docket.cli.support.letter_filters import at_server_time, letter_id, with_filters
from docket.cli.support.output import ago, printable, write_json, write_table
from docket.cli.support.task_modules import check_tasks
from docket.cli.support.terminal import Yes, ask, is_at_terminal
from docket.dead import Kind, Letter, Overview, Report
from docket.docket import Docket
from docket.model.amounts import show_size
from docket.model.texts import escaped_lines

app: typer.Typer = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Tasks that failed for good: look, retry, edit, discard."
)

Which = Annotated[
    str, typer.Argument(metavar="KEY|#ID", help="The key of the task (its newest letter), or # and an id.")
]
Several = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY|#ID]…", help="Keys of tasks, or # and the id of a letter.")
]
Everything = Annotated[
    bool, typer.Option("--everything", envvar="DOCKET_DEAD_EVERYTHING", help="All letters, without a filter.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", envvar="DOCKET_DEAD_DRY_RUN", help="Only count the letters that match.")
]
Most = Annotated[
    int | None,
    typer.Option(
        "--most",
        envvar="DOCKET_DEAD_MOST",
        parser=positive,
        metavar="NUMBER",
        help="At most this many letters, the oldest first.",
    ),
]
Mark = Annotated[
    int | None,
    typer.Option(
        "--mark",
        envvar="DOCKET_DEAD_MARK",
        parser=positive,
        metavar="ID",
        help="Only letters up to this id: finishes a batch that was interrupted.",
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        envvar="DOCKET_DEAD_LIMIT",
        parser=positive,
        metavar="NUMBER",
        show_default="20",
        help="Show this many letters, the newest first.",
    ),
]
Over = Annotated[
    timedelta | None,
    typer.Option(
        "--over",
        envvar="DOCKET_DEAD_OVER",
        parser=duration,
        metavar="DURATION",
        help="Spread the tasks evenly over this time.",
    ),
]
Arguments = Annotated[list[str], typer.Argument(metavar="NAME=JSON…", help="Parameters and their new values, as JSON.")]
Tasks = Annotated[list[str] | None, tasks_option("The functions, unless --app has them. May be repeated.")]


@app.command("ls")
@on_docket
@with_filters
def ls(
    docket: Docket,
    filter: dict[str, Any],
    kinds: Annotated[
        bool,
        typer.Option("--kinds", envvar="DOCKET_DEAD_KINDS", help="Only the kinds of letters, and how many there are."),
    ] = False,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    """List dead letters: how many there are, their kinds, and the newest ones.

    A kind is a function, a class of error, and the place where it was raised.
    """
    overview, matched, letters, now = run(_list(docket, filter, 0 if kinds else limit))
    if json:
        listed = {"matched": matched, "letters": [letter.as_json() for letter in letters]}
        write_json({**_overview_json(docket, overview), **listed})
        return
    _show_overview(docket, overview)
    if filter:
        typer.echo(f"{matched:,} of them match. The kinds are those of all letters.")
    if overview.kinds:
        write_table("", ("Number", "Kind", "Function", "Error", "Place", "Last"), _kind_rows(overview.kinds, now))
    for buried in overview.buried:
        typer.echo(
            printable(f"Automatic task {buried.name} is buried: docket dead retry {buried.name} starts it again")
        )
    if letters:
        typer.echo()
        write_table(
            "", ("Id", "Key", "Function", "Failed", "Deaths", "Error"), [_row(letter, now) for letter in letters]
        )


@app.command("show")
@on_docket
def show(docket: Docket, which: Which, json: Json = False) -> None:
    """Show one dead letter, with its traceback.

    Arguments stay sealed: nothing is decoded.
    """
    letter = run(_get(docket, which))
    if json:
        write_json(letter.as_json())
        return
    facts = {name: value for name, value in letter.as_json().items() if name != "traceback" and value not in (None, "")}
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' ').ljust(width)}  {printable(str(value))}")
    if letter.traceback:
        typer.echo(f"\n{escaped_lines(letter.traceback)}")


@app.command("retry")
@on_docket
@with_filters
def retry(
    docket: Docket,
    filter: dict[str, Any],
    which: Several = None,
    over: Over = None,
    most: Most = None,
    mark: Mark = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Make tasks of dead letters, with attempt 1.

    A letter whose key has an unfinished task is skipped. If the command is interrupted, run it
    again with the --mark that it has printed: every letter is either a letter or a task.
    """
    _check_everything(everything, filter, which)
    options: dict[str, Any] = {"over": over, "most": most, "everything": everything}
    _change(docket, "retried", filter, which, dry_run, json, mark, lambda f: docket.dead.retry(**options, **f))


@app.command("discard")
@on_docket
@with_filters
def discard(
    docket: Docket,
    filter: dict[str, Any],
    which: Several = None,
    most: Most = None,
    mark: Mark = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete dead letters. At a terminal the command asks first; in a script it does not."""
    _check_everything(everything, filter, which)
    options: dict[str, Any] = {"most": most, "everything": everything}
    if is_at_terminal() and not (yes or json or dry_run):
        count = run(_count(docket, _filters(filter, which)))
        if count:
            ask(printable(f"Delete {count:,} dead {'letter' if count == 1 else 'letters'} of docket {docket.name!r}?"))
    _change(docket, "discarded", filter, which, dry_run, json, mark, lambda f: docket.dead.discard(**options, **f))


@app.command("edit")
@on_docket
def edit(
    docket: Docket,
    which: Which,
    arguments: Arguments,
    tasks: Tasks = None,
    json: Json = False,
) -> None:
    """Change arguments of a dead letter: docket dead
    edit order-7 customer=8 --tasks shop.tasks:tasks

    The command decodes the arguments, so it needs the code of the function (--app or --tasks).
    """
    changes = dict(_read_argument(text) for text in arguments)
    check_tasks(docket, tasks or (), None)
    letter = run(_edit(docket, which, changes))
    if json:
        write_json(letter.as_json())
    else:
        typer.echo(
            printable(f"Edited dead letter #{letter.id} of {letter.key}; docket dead retry '#{letter.id}' runs it")
        )


# Asking the docket


async def _list(docket: Docket, filter: dict[str, Any], limit: int) -> tuple[Overview, int, list[Letter], datetime]:
    async with opened(docket):
        overview = await docket.dead.overview()
        filter = await at_server_time(docket, filter)
        matched = await docket.dead.count(**filter)
        letters = [letter async for letter in docket.dead.find(limit=limit, **filter)] if limit else []
        return overview, matched, letters, await docket.ledger.now()


async def _get(docket: Docket, which: str) -> Letter:
    async with opened(docket):
        id = letter_id(which)
        letter = await docket.dead.get(which if id is None else id)
    if letter is None:
        raise CommandFailed(f"docket {docket.name!r} has no dead letter {which!r}; docket dead ls lists them")
    return letter


async def _edit(docket: Docket, which: str, changes: dict[str, Any]) -> Letter:
    async with opened(docket):
        id = letter_id(which)
        try:
            return await docket.dead.edit(which if id is None else id, **changes)
        except (TypeError, KeyError, ValueError) as error:
            raise CommandFailed(str(error)) from error


def _change(
    docket: Docket,
    what: str,
    filter: dict[str, Any],
    which: list[str] | None,
    dry_run: bool,
    as_json: bool,
    mark: int | None,
    act: Callable[[dict[str, Any]], Coroutine[Any, Any, Report]],
) -> None:
    filters = _filters(filter, which)
    if dry_run:
        count = run(_count(docket, filters))
        write_json({"docket": docket.name, "matched": count}) if as_json else typer.echo(
            f"{count:,} dead letters match"
        )
        return
    report = run(_act(docket, filters, mark, act, as_json=as_json))
    if as_json:
        write_json({"docket": docket.name, **report.as_json()})
    else:
        _show_report(what, report)


def _check_everything(everything: bool, filter: dict[str, Any], which: list[str] | None) -> None:
    if everything and (filter or which):
        raise WrongUsage("--everything is about all letters: name no letters, and give no filter")


def _filters(filter: dict[str, Any], which: list[str] | None) -> list[dict[str, Any]]:
    if not which:
        return [filter]
    if filter:
        raise WrongUsage("name letters, or select them with options, but not both")
    return [{"key": text} if (id := letter_id(text)) is None else {"id": id} for text in which]


async def _count(docket: Docket, filters: list[dict[str, Any]]) -> int:
    async with opened(docket):
        return sum([await docket.dead.count(**await at_server_time(docket, filter)) for filter in filters])


async def _act(
    docket: Docket,
    filters: list[dict[str, Any]],
    mark: int | None,
    act: Callable[[dict[str, Any]], Coroutine[Any, Any, Report]],
    *,
    as_json: bool,
) -> Report:
    async with opened(docket):
        if mark is None:
            mark = await docket.dead.mark()
            # Also in a script: its log has the mark if the command is interrupted. The JSON has it.
            if not as_json:
                typer.echo(f"Letters up to --mark {mark}", err=True)
        reports = [await act({"mark": mark, **await at_server_time(docket, filter)}) for filter in filters]
    total = reports[0]
    for report in reports[1:]:
        total.add(report)
    return total


# Showing


def _show_overview(docket: Docket, overview: Overview) -> None:
    dropped = f"; {overview.dropped:,} did not fit and were dropped" if overview.dropped else ""
    size = show_size(overview.size)
    typer.echo(printable(f"Dead letters of docket {docket.name!r}: {overview.letters:,} ({size}){dropped}"))


def _overview_json(docket: Docket, overview: Overview) -> dict[str, Any]:
    return {
        "docket": docket.name,
        "count": overview.letters,
        "size": overview.size,
        "dropped": overview.dropped,
        "expired": overview.expired,
        "mark": overview.mark,
        "kinds": [{name: _plain(getattr(kind, name)) for name in Kind.__slots__} for kind in overview.kinds],
        "buried": [
            {"name": b.name, "since": b.since.isoformat(), "letter": b.letter, "text": b.text} for b in overview.buried
        ],
    }


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _kind_rows(kinds: tuple[Kind, ...], now: datetime) -> list[tuple[str, ...]]:
    return [(f"{k.count:,}", k.id, k.function, k.error, k.place, ago(k.last_at, now)) for k in kinds]


def _row(letter: Letter, now: datetime) -> tuple[str, ...]:
    return (
        f"#{letter.id}",
        letter.key,
        letter.function,
        ago(letter.died_at, now),
        str(letter.deaths),
        letter.text.split("\n", 1)[0][:80],
    )


def _show_report(what: str, report: Report) -> None:
    done = report.retried if what == "retried" else report.discarded
    typer.echo(f"{done:,} of {report.matched:,} dead letters {what}")
    for why, count in report.skipped.items():
        typer.echo(f"{count:,} skipped: {why}")
    if report.gone:
        typer.echo(f"{report.gone:,} were gone")
    if report.left:
        typer.echo(f"{report.left:,} left")
    if report.chains:
        typer.echo(f"{report.chains:,} buried automatic tasks start again within half a minute")


def _read_argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise WrongUsage(f"{text}: write NAME=JSON, for example customer=8")
    try:
        return name, loads(value)
    except JSONDecodeError:
        raise WrongUsage(f"{text}: {value} is not JSON; write {name}='\"{value}\"' for a text") from None
