"""Explains a failed command to its user: one line
that gives the remedy, and an exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import typer

from docket.errors import DocketError, ServerUnreachable, UnknownScheme
from docket.model.texts import escaped

FAILED, WRONG_USAGE = 1, 2


class CommandFailed(Exception):
    """The command cannot continue. The text is for the user."""

    code = FAILED


class StopRequested(SystemExit):
    """A signal arrived before the worker had started."""


class WrongUsage(CommandFailed):
    """The command line is wrong. The text says why."""

    code = WRONG_USAGE


@dataclass(frozen=True)
class Explanation:
    text: str
    code: int
    command: str = "docket"

    def show(self) -> None:
        if not self.text:
            return
        line = escaped(" ".join(self.text.split()))
        command = typer.style(f"{self.command}:", bold=True, fg="red") if sys.stderr.isatty() else f"{self.command}:"
        typer.echo(f"{command} {line}", err=True)


def explain(error: Exception) -> Explanation | None:
    """Returns the explanation for the user, or None if the error is a bug in docket."""
    if isinstance(error, CommandFailed):
        return Explanation(str(error), error.code)
    if isinstance(error, UnknownScheme):
        return Explanation(f"--url: {error}", WRONG_USAGE)
    if isinstance(error, ServerUnreachable):
        return Explanation(
            f"{str(error).rstrip('.')}. Is the server running? Choose another with --url or DOCKET_URL; "
            "embedded:///path/to/folder needs no server",
            FAILED,
        )
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "rich":
        return Explanation("the command line needs the package rich: pip install typer rich", FAILED)
    if isinstance(error, (DocketError, OSError)):
        return Explanation(str(error), FAILED)
    return _of_the_parser(error)


def _of_the_parser(error: Any) -> Explanation | None:
    """Explains an error of typer, which has a text, an exit code and usually a context."""
    if not hasattr(error, "format_message"):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "docket"
    # Typer adds this prefix to the texts of docket's parsers.
    text = error.format_message().rstrip(".").replace("Value error, ", "")
    if text and error.exit_code == WRONG_USAGE:
        text = f"{text[0].lower()}{text[1:]} (see {command} --help)"
    return Explanation(text, error.exit_code, command)
