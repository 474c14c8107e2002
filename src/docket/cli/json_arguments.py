"""Reads the arguments of a task from the command line: JSON, typed by the annotations of the
function."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, get_type_hints

from docket.cli.failures import CommandFailed, WrongUsage
from docket.codec.json_codec import JsonCodec
from docket.errors import MissingPackage, Undecodable
from docket.execution import TaskFunction

_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PLAIN = (bool, int, float, str, list, dict, None, type(None), Any, object, inspect.Parameter.empty)


@dataclass
class Arguments:
    """The arguments as JSON texts."""

    positional: list[str] = field(default_factory=list[str])
    named: dict[str, str] = field(default_factory=dict[str, str])

    def values(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values, as JSON has them."""
        return tuple(map(json.loads, self.positional)), {name: json.loads(text) for name, text in self.named.items()}

    def typed_values(self, function: TaskFunction) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values as the annotations of the function want them. Raises WrongUsage if one of them
        does not fit, and CommandFailed if a package is missing that reads them."""
        try:
            codec = JsonCodec()
        except MissingPackage:
            return self._plain_values(function)
        named = ",".join(f"{json.dumps(name)}:{text}" for name, text in self.named.items())
        body = f"[[{','.join(self.positional)}],{{{named}}}]"
        try:
            return codec.decode_call(function, body.encode())
        except Undecodable as error:
            raise WrongUsage(str(error)) from None

    def _plain_values(self, function: TaskFunction) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            hints = get_type_hints(function)
        except Exception:
            hints = {}
        parameters = list(inspect.signature(function).parameters)
        for name in (*parameters[: len(self.positional)], *self.named):
            if hints.get(name, Any) not in _PLAIN:
                raise CommandFailed(
                    f"argument {name!r}: reading its type from JSON needs the package msgspec: pip install 'docket[json]'"
                )
        return self.values()


def read_arguments(texts: Sequence[str]) -> Arguments:
    """Each text is a JSON value, or `name=` and a JSON value. Raises WrongUsage."""
    arguments = Arguments()
    for text in texts:
        match = _KEYWORD.fullmatch(text)
        name, value = (match[1], match[2]) if match else ("", text)
        if text.startswith("--"):
            raise WrongUsage(f"no such option: {text} (see docket add --help)")
        _check(text, name, value)
        if not name:
            arguments.positional.append(value)
        elif name in arguments.named:
            raise WrongUsage(f"the argument {name!r} is there twice")
        else:
            arguments.named[name] = value
    return arguments


def _check(text: str, name: str, value: str) -> None:
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        quoted = json.dumps(value, ensure_ascii=False)
        hint = f"'{name}={quoted}'" if name else f"'{quoted}'"
        raise WrongUsage(f"{text!r} is not JSON; if it is text, quote it twice: {hint}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
