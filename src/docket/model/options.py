"""Options that a signature declares: `concurrency: Annotated[int, Option("Run …", least=1)] = 10`.

The signature is the only place that knows an option. Its check, the flag and the environment
variable of the command line and the tables of docs/cli.md follow from it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from typing import Any, cast, get_args, get_type_hints

from .amounts import write_duration
from .times import check_durations

# The command line names the object: `module:name`.
NAMED_OBJECT = "MODULE:NAME"
# The groups of options in the help of `docket worker`.
TUNING, OPERATING, DEVELOPING = "Fine tuning", "Operating", "Developing"
# Which processes must have the same value of a setting.
EVERYWHERE, WORKERS = "producers and workers", "workers"


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter that is also an option of the command line. The help is a sentence."""

    help: str
    # A number or a duration is at least this.
    least: int | timedelta | None = None
    # A duration is longer than 0.
    is_positive: bool = False
    # Ends the error about a value out of bounds.
    remedy: str | None = None
    # On the command line: the flags and the variables, if they do not follow from the name, and how
    # a value is written, if that does not follow from the type.
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    metavar: str | None = None
    # The group of the option in the help.
    panel: str | None = None
    is_hidden: bool = False
    # The default in words, if the value itself does not say enough.
    default: str | None = None
    # The page of docs/ with more about it.
    page: str | None = None
    # Of a setting of a docket: the attribute that has it, if its name is another one; and which
    # processes must have the same value: EVERYWHERE or WORKERS.
    attribute: str | None = None
    must_agree: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """A parameter of a signature, with its `Option`."""

    name: str
    # Its type, without None.
    type: Any
    default: Any
    option: Option

    def check(self, owner: str, value: Any) -> None:
        """Raises TypeError for a duration that is not a timedelta, ValueError for a value out of
        bounds."""
        if self.type is timedelta:
            check_durations(owner, **{self.name: value})
        problem = self._problem(value)
        if problem is not None:
            remedy = f"; {self.option.remedy}" if self.option.remedy else ""
            raise ValueError(f"{self.name}={value}: it {problem}{remedy}")

    def _problem(self, value: Any) -> str | None:
        least = self.option.least
        if self.option.is_positive and value <= timedelta(0):
            return "must be positive"
        if least is None or value is None or value >= least:
            return None
        if isinstance(least, timedelta):
            return f"must be at least {write_duration(least)}" if least else "cannot be negative"
        return f"must be at least {least}"


@functools.cache
def declared_options(owner: Callable[..., Any]) -> Mapping[str, DeclaredOption]:
    """The options that a function or a class declares in its signature, in order."""
    # A dataclass inherits fields, whose types its bases' modules know.
    has_own_init = inspect.isclass(owner) and not is_dataclass(cast(type, owner))
    hints = get_type_hints(owner.__init__ if has_own_init else owner, include_extras=True)
    return {
        name: DeclaredOption(name, _without_none(hints[name].__origin__), parameter.default, option)
        for name, parameter in inspect.signature(owner).parameters.items()
        for option in getattr(hints.get(name), "__metadata__", ())
        if isinstance(option, Option)
    }


def _without_none(type: Any) -> Any:
    """`int` for `int | None`."""
    others = [one for one in get_args(type) if one is not None.__class__]
    return others[0] if len(others) == 1 and len(get_args(type)) == 2 else type


def check_options(owner: Callable[..., Any], arguments: Mapping[str, Any]) -> Mapping[str, DeclaredOption]:
    """Checks the arguments of a call, and returns the options as they are declared. Raises
    TypeError or ValueError."""
    declared = declared_options(owner)
    for option in declared.values():
        option.check(owner.__qualname__, arguments[option.name])
    return declared
