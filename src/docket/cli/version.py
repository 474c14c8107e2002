"""`docket version`"""

from __future__ import annotations

import typer

from docket._version import __version__

app: typer.Typer = typer.Typer(add_completion=False)


@app.command()
def version() -> None:
    """Show the version of docket."""
    typer.echo(__version__)
