"""The output of commands: tables for people, columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from docket.dependencies import format_duration
from docket.model.texts import as_json_line
from docket.model.texts import escaped as printable


def is_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
    """Returns a new console on standard output, which tests may have replaced."""
    return Console(highlight=False, soft_wrap=False)


def write_json(value: Any) -> None:
    typer.echo(as_json_line(value))


def write_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Writes a table on a terminal, and aligned columns without truncation in a pipe."""
    listed = [list(row) for row in rows]
    if not is_terminal():
        if title:
            typer.echo(printable(title))
        for line in aligned([[column.upper() for column in columns], *listed]):
            typer.echo(line)
        return
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold cyan",
        box=None,
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in listed:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats rows as lines with aligned columns."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]


def ago(moment: datetime, now: datetime) -> str:
    """Formats a time relative to now: "5s ago" or "in 5s"."""
    seconds = (now - moment).total_seconds()
    return f"{format_duration(seconds)} ago" if seconds >= 0 else f"in {format_duration(-seconds)}"
