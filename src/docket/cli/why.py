"""`docket why`"""

from __future__ import annotations

from typing import Annotated

import typer

from docket.cli.support.connect import opened, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json
from docket.cli.support.output import printable, write_json
from docket.docket import Docket
from docket.inspection.reasons import Reason

app: typer.Typer = typer.Typer(add_completion=False)


@app.command()
@on_docket
def why(
    docket: Docket,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the task.")],
    json: Json = False,
) -> None:
    """Say why a task does not run.

    The first line is the cause that counts; lines that begin with "Also" are further causes. For a
    task that runs or has ended the command says that. An unknown key is an answer, too, so the exit
    code is 0.
    """
    reason = run(_why(docket, key))
    if json:
        write_json(reason.as_json())
        return
    typer.echo(printable(reason.sentence))
    for other in reason.also:
        typer.echo(printable(f"Also: {other.sentence}"))


async def _why(docket: Docket, key: str) -> Reason:
    async with opened(docket):
        return await docket.why(key)
