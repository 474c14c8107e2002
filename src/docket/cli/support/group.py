"""A group of commands that imports a command only when it runs, and prints errors on one line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from docket.cli.support.failures import explain
from docket.cli.support.standard_output import accept_every_character, discard_output


@dataclass(frozen=True)
class CommandEntry:
    """A command in the list: its location (`module:typer_app`),
    its summary and the panel that lists it."""

    path: str
    summary: str
    panel: str

    def load(self, name: str) -> Any:
        module, _, attribute = self.path.partition(":")
        command = get_command(getattr(importlib.import_module(module), attribute))
        command.name = name
        command.help = _unwrapped(command.help or "")
        return command


def _unwrapped(text: str) -> str:
    """Puts each paragraph on one line: the terminal wraps it, not the source."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class LazyCommands(TyperGroup):
    """Lists commands from `entries`, and imports only the command that runs."""

    entries: ClassVar[Mapping[str, CommandEntry]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, entry in self.entries.items():
            self.commands[name] = TyperCommand(name, help=entry.summary, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else self.entries[name].load(name), rest

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs a command and exits: 0 done, 1 failed, 2 wrong
        usage, 130 interrupted. An error is one line."""
        accept_every_character()
        try:
            code = super().main(args, prog_name or "docket", complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            code = 1
        except BrokenPipeError:
            # The reader closed the pipe: `docket snapshot | head -1`.
            discard_output()
            code = 1
        except Exception as error:
            explanation = explain(error)
            if explanation is None:
                raise
            explanation.show()
            code = explanation.code
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)
