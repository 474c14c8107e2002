"""Reads numbers from options. An error names the number."""

from __future__ import annotations

from collections.abc import Callable

import typer

from docket.model.sizes import read_size


def whole_number(least: int, most: int | None = None) -> Callable[[str | int], int]:
    """Reads a whole number within bounds."""

    def read(value: str | int) -> int:
        try:
            number = int(value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not a whole number") from None
        if number < least:
            raise typer.BadParameter(f"{number} is too small: it must be at least {least}")
        if most is not None and number > most:
            raise typer.BadParameter(f"{number} is too large: it must be at most {most}")
        return number

    return read


def size(value: str | int) -> int:
    """Reads an amount of memory: 512MiB, 2GB, or a number of bytes."""
    try:
        number = read_size(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if number < 1:
        raise typer.BadParameter(f"{number} is too small: it must be at least 1")
    return number


positive: Callable[[str | int], int] = whole_number(1)
port: Callable[[str | int], int] = whole_number(0, 65535)
