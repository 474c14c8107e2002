"""How long, and how many, dead letters are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .times import duration_ms

AGE = timedelta(days=7)
LETTERS = 100_000
SIZE = 64 * 1024 * 1024


def check_age(what: str, age: Any) -> timedelta:
    if not isinstance(age, timedelta):
        raise TypeError(f"{what}: {age!r} is not a timedelta, for instance timedelta(days=7); 0 keeps nothing")
    if age < timedelta(0):
        raise ValueError(f"{what}: {age} cannot be negative; 0 keeps nothing")
    return age


@dataclass(frozen=True, slots=True)
class Keep:
    """How docket keeps tasks that failed for good: for how long, how many, and how many bytes of
    them. If there are more, it drops the oldest, counts them and warns.

    Raises TypeError or ValueError for a setting that is not valid.
    """

    age: timedelta = AGE
    letters: int = LETTERS
    size: int = SIZE

    def __post_init__(self) -> None:
        check_age("Keep(age=…)", self.age)
        for name, number in (("letters", self.letters), ("size", self.size)):
            if not isinstance(number, int) or isinstance(number, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
                raise TypeError(f"Keep({name}=…): {number!r} is not a whole number")
            if number < 0:
                raise ValueError(f"Keep({name}=…): {number} cannot be negative; 0 keeps nothing")

    @property
    def age_ms(self) -> int:
        """0 if nothing is kept."""
        return duration_ms(self.age) if self.letters and self.size else 0

    @property
    def is_off(self) -> bool:
        """Whether no letters are kept."""
        return not self.age_ms


NOTHING = Keep(timedelta(0))


def check_keep(given: Keep | timedelta | int | None) -> Keep | timedelta | int | None:
    """Raises TypeError or ValueError for a setting of a docket that is not valid."""
    what = "Docket(keep_failures=…)"
    if isinstance(given, timedelta):
        return check_age(what, given)
    if given is not None and not isinstance(given, Keep) and (given != 0 or type(given) is bool):
        raise TypeError(f"{what}: {given!r} is neither a Keep nor a timedelta; 0 keeps nothing")
    return given


def as_keep(given: Keep | timedelta | int | None, execution_ttl: timedelta) -> Keep:
    """Reads a setting: a `Keep`, an age, 0 for nothing, or None for the default. The default keeps
    nothing if finished tasks leave no record either."""
    if given is None:
        return Keep() if execution_ttl > timedelta(0) else NOTHING
    if isinstance(given, Keep):
        return given
    return Keep(given) if isinstance(given, timedelta) else NOTHING
