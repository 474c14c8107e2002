"""`docket version`"""

from __future__ import annotations

import typer

from docket._version import __version__
from docket.cli.support.flags import Json
from docket.model.texts import as_json_line

app: typer.Typer = typer.Typer(add_completion=False)


@app.command()
def version(json: Json = False) -> None:
    """Show the version of docket."""
    if json:
        typer.echo(as_json_line({"version": __version__}))
    else:
        typer.echo(__version__)
