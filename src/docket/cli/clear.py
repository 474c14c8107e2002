"""`docket clear`"""

from __future__ import annotations

import typer

from docket.cli.opening import open_docket, run
from docket.cli.options import DEFAULT_DOCKET, DEFAULT_URL, DocketName, Json, Url
from docket.cli.output import write_json

app = typer.Typer(add_completion=False)


@app.command()
def clear(docket: DocketName = DEFAULT_DOCKET, url: Url = DEFAULT_URL, json: Json = False) -> None:
    """Remove every task that waits; running tasks go on.

    Removed tasks are cancelled: whoever waits for one is told. Strikes stay.
    """
    removed = run(_clear(docket, url))
    if json:
        write_json({"docket": docket, "removed": removed})
    else:
        typer.echo(f"Removed {removed:,} {'task' if removed == 1 else 'tasks'} from docket {docket!r}")


async def _clear(name: str, url: str) -> int:
    async with open_docket(name, url) as docket:
        return await docket.clear()
