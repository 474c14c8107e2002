"""`docket strikes ls` and `docket strikes remove`"""

from __future__ import annotations

from typing import Annotated

import typer

from docket.cli.connect import opened, run
from docket.cli.docket_options import on_docket
from docket.cli.output import printable, write_json, write_table
from docket.cli.support.flags import Json
from docket.docket import Docket

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, help="List and remove strikes.")


@app.command("ls")
@on_docket
def ls(docket: Docket, json: Json = False) -> None:
    """List the strikes of a docket, also those that cannot be read."""
    strikes, unreadable = run(_read(docket))
    if json:
        listed = [{"id": id, "strike": text, "unreadable": None} for id, text in strikes.items()]
        write_json([*listed, *({"id": id, "strike": None, "unreadable": why} for id, why in unreadable.items())])
    elif not strikes and not unreadable:
        typer.echo(f"Strikes of docket {printable(docket.name)!r}: none")
    else:
        rows = [*strikes.items(), *((id, f"cannot be read, strikes nothing: {why}") for id, why in unreadable.items())]
        write_table(f"Strikes of docket {docket.name!r}", ("Id", "Strike"), rows)


@app.command("remove")
@on_docket
def remove(
    docket: Docket,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the strike, from `docket strikes ls`.")],
    json: Json = False,
) -> None:
    """Remove a strike by its id, also one that cannot be read."""
    removed = run(_remove(docket, id))
    if json:
        write_json({"docket": docket.name, "id": id, "removed": removed})
    else:
        typer.echo(printable(f"{'Removed' if removed else 'No such strike'}: {id} on docket {docket.name!r}"))


async def _read(docket: Docket) -> tuple[dict[str, str], dict[str, str]]:
    async with opened(docket):
        await docket.wait_for_strikes_loaded()
        strikes = docket.strike_list
        return {id: strike.call_repr() for id, strike in strikes.by_id.items()}, strikes.unreadable


async def _remove(docket: Docket, id: str) -> bool:
    async with opened(docket):
        await docket.wait_for_strikes_loaded()
        return await docket.strike_list.discard(id)
