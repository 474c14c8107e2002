"""Options on the command line: a flag and an environment variable for each declared option, readers
of their values, and the options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, EnumType
from typing import Annotated, Any

import typer

from docket.model.amounts import read_duration, read_size, write_duration
from docket.model.options import DeclaredOption

Json = Annotated[bool, typer.Option("--json", envvar="DOCKET_JSON", help="Write JSON, for other programs.")]
NewKey = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="DOCKET_TASK_KEY", metavar="KEY", help="The key of the task. By default a new unique key."
    ),
]


def tasks_option(help: str) -> Any:
    """The option `--tasks`."""
    return typer.Option("--tasks", envvar="DOCKET_TASKS", metavar="MODULE:NAME", help=help)


# Values. An error names the value.


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


def size(value: str | int) -> int:
    """Reads an amount of memory: 512MiB, 2GB, or a number of bytes."""
    try:
        number = read_size(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return positive(number)


def duration(value: str | timedelta) -> timedelta:
    """Reads a duration."""
    if isinstance(value, timedelta):
        return value
    try:
        return read_duration(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def positive_duration(value: str | timedelta) -> timedelta:
    """Reads a duration longer than 0."""
    length = duration(value)
    if length <= timedelta(0):
        raise typer.BadParameter("it must be longer than 0s")
    return length


# Declared options


class Flag:
    """A declared option on the command line. `prefix`
    begins the name of its environment variable."""

    def __init__(self, declared: DeclaredOption, prefix: str) -> None:
        option = declared.option
        self.declared = declared
        self.names: tuple[str, ...] = option.flags or (_flag(declared),)
        # The parameter of the command, for instance `signing_keys_file`.
        self.parameter_name: str = self.names[0].partition("/")[0].removeprefix("--").replace("-", "_")
        self.variables: tuple[str, ...] = option.variables or (prefix + self.parameter_name.upper(),)

    def parameter(self, *, is_optional: bool = False, **more: Any) -> inspect.Parameter:
        """The parameter of a command, as typer reads it. None stands for an option that is not
        given, if it `is_optional`."""
        option, default = self.declared.option, self.declared.default
        given = None if is_optional or default is None else list(default) if self._is_list() else default
        # Typer itself writes a default that it knows, unless it is a duration.
        in_words = given is None or isinstance(given, timedelta) or option.default is not None
        declaration: dict[str, Any] = {
            # An error names the variable as it is given here.
            "envvar": self.variables[0] if len(self.variables) == 1 else list(self.variables),
            "help": option.help,
            "rich_help_panel": option.panel,
            "hidden": option.is_hidden,
            "show_default": (self.default_text() if in_words else None) or True,
            **self._form(),
            **more,
        }
        kind = self._type()
        return inspect.Parameter(
            self.parameter_name,
            inspect.Parameter.KEYWORD_ONLY,
            default=given,
            annotation=Annotated[kind | None if given is None else kind, typer.Option(*self.names, **declaration)],
        )

    def default_text(self) -> str | None:
        """The default as people write it, or None if there is none."""
        default, text = self.declared.default, self.declared.option.default
        if text is not None or default is None or default == ():
            return text
        return self.as_text(default)

    def as_text(self, value: Any) -> str:
        """A value as an environment variable has it."""
        if self._is_list():
            return " ".join(value)
        if isinstance(value, timedelta):
            return write_duration(value)
        return str(value.value if isinstance(value, Enum) else value)

    def _is_list(self) -> bool:
        return self.declared.type == tuple[str, ...]

    def _type(self) -> Any:
        """The type of the value that a command receives."""
        if self._is_list():
            return list[str]
        if self.declared.option.metavar == "DURATION":
            return timedelta
        kind: Any = self.declared.type
        return kind if kind in (bool, int, timedelta) or isinstance(kind, EnumType) else str

    def _form(self) -> dict[str, Any]:
        """How a value is read, and how the help writes it."""
        option, kind = self.declared.option, self._type()
        if kind is timedelta:
            return {"parser": positive_duration if option.is_positive else duration, "metavar": "DURATION"}
        if kind is int:
            metavar = option.metavar or "NUMBER"
            least = option.least if isinstance(option.least, int) else 1
            reader = {"PORT": port, "SIZE": size}.get(metavar) or whole_number(least)
            return {"parser": reader, "metavar": metavar}
        return {"case_sensitive": False} if option.metavar is None and kind is not bool else {"metavar": option.metavar}


def _flag(declared: DeclaredOption) -> str:
    flag = f"--{declared.name.replace('_', '-')}"
    return f"{flag}/--no-{flag[2:]}" if declared.type is bool else flag
