"""Durations as options of the command line."""

from __future__ import annotations

from datetime import timedelta

import typer

from docket.model.durations import read_duration


def duration(value: str | timedelta) -> timedelta:
    """Reads a duration as an option of the command line."""
    if isinstance(value, timedelta):
        return value
    try:
        return read_duration(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def write_duration(length: timedelta) -> str:
    """Writes a duration in a form that `read_duration` reads."""
    return f"{length // timedelta(microseconds=1)}us"
