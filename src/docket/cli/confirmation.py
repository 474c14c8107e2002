"""Asks before a command that cannot be undone. Only a person at a terminal is asked."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from docket.cli.failures import CommandFailed

Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", envvar="DOCKET_YES", help="Do not ask. A command that is not at a terminal never asks."
    ),
]


def is_at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str) -> None:
    """Raises CommandFailed if the user does not agree."""
    if not typer.confirm(question):
        raise CommandFailed("nothing was changed")
