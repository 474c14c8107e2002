"""Filters and cursors of lists: filters as data and as the text of a filter bar, cursors as people
send them back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from docket.model.places import QUEUED_PLACES, UNFINISHED_PLACES, Place
from docket.model.times import duration_ms

# The words of a filter for several places.
GROUPS: dict[str, frozenset[Place]] = {
    "queued": frozenset(QUEUED_PLACES),
    "waiting": frozenset(QUEUED_PLACES) | {Place.SCHEDULED},
    "unfinished": frozenset(UNFINISHED_PLACES),
    "finished": frozenset(Place) - frozenset(UNFINISHED_PLACES),
}
UNFINISHED = GROUPS["unfinished"]


@dataclass(frozen=True, kw_only=True)
class TaskFilter:
    """Conditions for tasks. A task matches if it meets all of them.

    `places` are where it may be; `key` is its whole key, `key_prefix` its beginning, `key_part` a
    part of it; `argument` is a `Logged` parameter and its text; `worker` is the name of the worker
    that runs it. `older` and `younger` compare how long ago the task was due: a task that is not
    due yet is younger than any time.
    """

    places: frozenset[Place] = UNFINISHED
    function: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    key_part: str | None = None
    argument: tuple[str, str] | None = None
    worker: str | None = None
    older: timedelta | None = None
    younger: timedelta | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value == "":
                raise ValueError(f"{field.name}: it is empty")
        if not self.places:
            raise ValueError("places: there must be at least one")
        for age in (self.older, self.younger):
            if age is not None and duration_ms(age) < 0:
                raise ValueError(f"{age}: an age cannot be negative")

    @property
    def is_empty(self) -> bool:
        """Whether it matches every unfinished task."""
        return self == TaskFilter()

    def within(self, places: frozenset[Place]) -> TaskFilter:
        """This filter for other places."""
        return replace(self, places=places)

    @property
    def compares(self) -> bool:
        """Whether tasks of the places have to be compared one by one."""
        return replace(self, places=UNFINISHED) != TaskFilter()

    def __str__(self) -> str:
        """The filter as `read_filter` reads it."""
        words = [] if self.places == UNFINISHED else [f"state:{_places_word(self.places)}"]
        texts = {"function": self.function, "key": self.key, "worker": self.worker}
        texts |= {"prefix": self.key_prefix, "contains": self.key_part}
        words += [f"{name}:{_quoted(text)}" for name, text in texts.items() if text is not None]
        words += [f"{name}:{age.total_seconds():g}s" for name, age in self._ages() if age is not None]
        if self.argument is not None:
            words.append(f"argument:{_quoted('='.join(self.argument))}")
        return " ".join(words)

    def _ages(self) -> tuple[tuple[str, timedelta | None], ...]:
        return (("older", self.older), ("younger", self.younger))


def read_filter(text: str) -> TaskFilter:
    """Reads the text of a filter bar: words such as `function:send_mail`, `state:queued`,
    `key:order-7`, `prefix:order-`, `contains:7`, `worker:w1`, `older:5m`, `younger:1h` and
    `argument:customer=7`. `name:text` with any other name is a `Logged` argument, and a word alone
    is a part of the key. Quotes keep spaces together. Raises ValueError for a text that is not a
    filter."""
    found: dict[str, object] = {}

    def give(name: str, value: object) -> None:
        if name in found:
            raise ValueError(f"the filter has two values for {name.replace('_', ' ')}")
        found[name] = value

    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError("the filter has a quote that is not closed") from None
    for word in words:
        name, colon, value = word.partition(":")
        if not colon:
            give("key_part", word)
        elif name in _READERS:
            field, read = _READERS[name]
            give(field, read(_given(name, value)))
        else:
            give("argument", (_given("the name of an argument", name), _given(name, value)))
    return TaskFilter(**found)  # pyright: ignore[reportArgumentType] - the readers return the types of the fields


def _given(name: str, value: str) -> str:
    if not value:
        raise ValueError(f"{name}: the filter has no value for it")
    return value


def _read_places(text: str) -> frozenset[Place]:
    chosen = frozenset[Place]()
    for word in text.split(","):
        if word in GROUPS:
            chosen |= GROUPS[word]
        elif word in list(Place):
            chosen |= {Place(word)}
        else:
            known = ", ".join([*Place, *GROUPS])
            raise ValueError(f"state:{word}: there is no such state; choose from {known}")
    return chosen


def _places_word(places: frozenset[Place]) -> str:
    return next((word for word, group in GROUPS.items() if group == places), ",".join(sorted(places)))


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _read_age(text: str) -> timedelta:
    number, unit = text[:-1], text[-1]
    try:
        return timedelta(seconds=float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{text!r} is not an age: write a number and s, m, h or d, for example 5m") from None


def _read_argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"argument:{text}: write argument:NAME=TEXT")
    return name, value


def _text(text: str) -> str:
    return text


_READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "function": ("function", _text),
    "state": ("places", _read_places),
    "key": ("key", _text),
    "prefix": ("key_prefix", _text),
    "contains": ("key_part", _text),
    "worker": ("worker", _text),
    "older": ("older", _read_age),
    "younger": ("younger", _read_age),
    "argument": ("argument", _read_argument),
}


def _quoted(text: str) -> str:
    return shlex.quote(text)


_LARGEST = 2**64 - 1
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


def is_scan_cursor(text: str) -> bool:
    """Whether a SCAN command takes it."""
    return _NUMBER.fullmatch(text) is not None and int(text) <= _LARGEST


def is_entry_id(text: str) -> bool:
    """Whether entries of a stream may come before it and after it."""
    first, dash, second = text.partition("-")
    if not dash or not is_scan_cursor(first) or not is_scan_cursor(second):
        return False
    return (0, 0) < (int(first), int(second)) < (_LARGEST, _LARGEST)
