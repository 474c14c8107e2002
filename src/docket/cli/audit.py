"""`docket audit`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json, positive
from docket.cli.support.output import write_json, write_table
from docket.docket import Docket
from docket.inspection.audit import AuditEntry, AuditPage
from docket.inspection.reasons import as_plain

app: typer.Typer = typer.Typer(add_completion=False)

Who = Annotated[
    str | None,
    typer.Option("--who", envvar="DOCKET_AUDIT_WHO", metavar="NAME", help="Show only the changes of this person."),
]
Action = Annotated[
    str | None,
    typer.Option(
        "--action",
        envvar="DOCKET_AUDIT_ACTION",
        metavar="ACTION",
        help="Show only this kind of change, such as pause or dead.retry.",
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        envvar="DOCKET_AUDIT_AFTER",
        metavar="CURSOR",
        help="Go on where the JSON before ended: its cursor.",
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        envvar="DOCKET_AUDIT_LIMIT",
        parser=positive,
        metavar="NUMBER",
        show_default="20",
        help="Show at most this many changes.",
    ),
]

_COLUMNS = ("When", "Who", "Via", "Action", "About", "Number", "Outcome")
# The most entries that one page has.
_PAGE = 500


@app.command()
@on_docket
def audit(
    docket: Docket,
    who: Who = None,
    action: Action = None,
    after: After = None,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    """List who changed what on a docket. The newest change comes first.

    Changes come from the dashboard, its API, commands and programs. docket keeps about 10,000 of
    them, for 90 days.
    """
    page = run(_audit(docket, who, action, after, limit))
    if json:
        write_json({"docket": docket.name, **as_plain(page)})
        return
    write_table(f"docket {docket.name!r}", _COLUMNS, [_row(entry) for entry in page.entries])
    if page.cursor is not None:
        typer.echo(f"There are older ones: --after {page.cursor}")


async def _audit(docket: Docket, who: str | None, action: str | None, after: str | None, limit: int) -> AuditPage:
    """As many entries as asked for, also if they take several pages."""
    selected: dict[str, Any] = {"who": who, "action": action}
    entries: list[AuditEntry] = []
    async with opened(docket):
        while True:
            size = min(limit - len(entries), _PAGE)
            try:
                page = await docket.audit(cursor=after, size=size, **selected)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
            entries += page.entries
            after = page.cursor
            if after is None or len(entries) >= limit:
                return AuditPage(entries=tuple(entries), cursor=after, total=page.total)


def _row(entry: AuditEntry) -> tuple[str, ...]:
    return (
        f"{entry.at:%Y-%m-%d %H:%M:%S}",
        entry.who,
        entry.via,
        entry.action,
        entry.about,
        "-" if entry.count is None else f"{entry.count:,}",
        entry.outcome,
    )
