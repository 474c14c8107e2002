"""`docket clear`"""

from __future__ import annotations

import typer

from docket.cli.connect import opened, run
from docket.cli.docket_options import on_docket
from docket.cli.options import Json
from docket.cli.output import write_json
from docket.docket import Docket

app: typer.Typer = typer.Typer(add_completion=False)


@app.command()
@on_docket
def clear(docket: Docket, json: Json = False) -> None:
    """Cancel every waiting task. Running tasks continue.

    Programs that wait for the result of a removed task
    get ExecutionCancelled. Strikes stay in effect.
    """
    removed = run(_clear(docket))
    if json:
        write_json({"docket": docket.name, "removed": removed})
    else:
        typer.echo(f"Removed {removed:,} {'task' if removed == 1 else 'tasks'} from docket {docket.name!r}")


async def _clear(docket: Docket) -> int:
    async with opened(docket):
        return await docket.clear()
