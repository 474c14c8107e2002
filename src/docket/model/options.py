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

from .times import check_durations

# The command line names the object: `module:name`.
NAMED_OBJECT = "MODULE:NAME"
# The groups of options in the help of `docket worker`.
TUNING, OPERATING, DEVELOPING = "Fine tuning", "Operating", "Developing"


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter that is also an option of the command line. The help is a sentence."""

    help: str
    # A number is at least this.
    least: int | None = None
    # A duration is longer than 0.
    is_positive: bool = False
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
            if self.option.is_positive and value <= timedelta(0):
                raise ValueError(f"{self.name}={value}: it must be positive")
        elif self.option.least is not None and value is not None and value < self.option.least:
            raise ValueError(f"{self.name}={value}: it must be at least {self.option.least}")


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


def check_options(owner: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Checks the arguments of a call. Raises TypeError or ValueError."""
    name = owner.__qualname__.removesuffix(".__init__")
    for option in declared_options(owner).values():
        option.check(name, arguments[option.name])
