"""Reads numbers from options. An error names the number."""

from __future__ import annotations

from collections.abc import Callable

import typer


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


positive: Callable[[str | int], int] = whole_number(1)
port: Callable[[str | int], int] = whole_number(0, 65535)
