"""Filters that select dead letters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, cast

from docket.codec.error_texts import class_name_of
from docket.dependencies.fingerprints import fingerprint
from docket.errors import EmptyFilter
from docket.ledger.letters import KindRow, LetterQuery, fingerprint_line
from docket.model.times import to_ms

from .letter import Kind


class LetterFilter(TypedDict, total=False):
    """Conditions for letters. A letter matches if it meets all of them.

    `function` is a function or its name, `error` an exception class or its name, with or without
    its module, `text` a part of the error's text or of its traceback, `key` the key of the task,
    `key_prefix` its beginning, `since` and `until` when the task failed (`until` is exclusive),
    `argument` the name of a `Logged` parameter and its value, `kind` a `Kind` or its id, `id` the
    id of a letter.
    """

    function: str | Callable[..., Any]
    error: str | type[BaseException]
    text: str
    key: str
    key_prefix: str
    since: datetime
    until: datetime
    argument: tuple[str, Any]
    kind: str | Kind
    id: int


NAMES = tuple(LetterFilter.__annotations__)
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "key": (str,),
    "key_prefix": (str,),
    "since": (datetime,),
    "until": (datetime,),
    "kind": (str, Kind),
    "id": (int,),
}


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter that was checked."""

    function: str | None
    error: str | None
    kind: str | None
    id: int | None
    query: LetterQuery

    @property
    def is_empty(self) -> bool:
        return self.id is None and self.kind is None and self.query == LetterQuery()

    @property
    def needs_kinds_only(self) -> bool:
        """Whether the kinds say how many letters match."""
        return self.id is None and self.query == LetterQuery(function=self.function, error=self.error)

    def with_kinds(self, kinds: list[KindRow], mark: int | None) -> LetterQuery:
        """The query for the letters of the kinds that may match."""
        if self.function is None and self.error is None and self.kind is None:
            return dataclasses.replace(self.query, mark=mark)
        chosen = [kind for kind in kinds if self.may_match(kind)]
        decide = not any(self.is_coarse(kind) for kind in chosen)
        return dataclasses.replace(self.query, mark=mark, kinds=tuple(kind.id for kind in chosen), kinds_decide=decide)

    def may_match(self, kind: KindRow) -> bool:
        if self.kind is not None and kind.id != self.kind:
            return False
        if self.function is not None and kind.function not in ("", self.function):
            return False
        return self.error is None or kind.error == "" or _is_class(kind.error, self.error)

    def is_coarse(self, kind: KindRow) -> bool:
        """Whether the letters of a kind have different
        functions or errors, as far as they matter."""
        return (self.function is not None and not kind.function) or (self.error is not None and not kind.error)


def _is_class(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith(f".{wanted}")


def select(given: dict[str, Any], *, encrypts: bool = False) -> Selection:
    """Checks a filter. Raises TypeError or ValueError, which name the field."""
    for name, value in given.items():
        if name not in NAMES:
            raise TypeError(f"dead letters have no filter {name!r}; there are {', '.join(NAMES)}")
        types = _TYPES.get(name)
        if types is not None and (not isinstance(value, types) or isinstance(value, bool)):
            expected = " or ".join(type.__name__ for type in types)
            raise TypeError(f"{name}={value!r}: this filter takes a {expected}")
    if "id" in given and (others := sorted(given.keys() - {"id", "key"})):
        raise ValueError(f"id={given['id']!r} names one letter, so {', '.join(others)} cannot go with it")
    if encrypts and ("text" in given or "argument" in given):
        raise ValueError("this docket encrypts (encrypt=True): its dead letters cannot be searched by text or argument")
    kind = given.get("kind")
    query = LetterQuery(
        function=_function_name(given.get("function")),
        error=_error_name(given.get("error")),
        text=_not_empty("text", given.get("text")),
        key=given.get("key"),
        key_prefix=_not_empty("key_prefix", given.get("key_prefix")),
        from_ms=_ms(given.get("since")),
        before_ms=_ms(given.get("until")),
        argument=_argument(given.get("argument")),
    )
    return Selection(query.function, query.error, kind.id if isinstance(kind, Kind) else kind, given.get("id"), query)


def check_not_empty(selection: Selection, what: str, everything: bool) -> None:
    if selection.is_empty and not everything:
        raise EmptyFilter(f"{what} without a filter concerns all dead letters: say so with everything=True")
    if not selection.is_empty and everything:
        raise ValueError(f"{what} with everything=True takes no filter")


def _function_name(function: Any) -> str | None:
    if function is None or isinstance(function, str):
        return _not_empty("function", function)
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"function={function!r}: this filter takes a task function or its name")
    return name


def _error_name(error: Any) -> str | None:
    if error is None or isinstance(error, str):
        return _not_empty("error", error)
    if not isinstance(error, type) or not issubclass(error, BaseException):
        raise TypeError(f"error={error!r}: this filter takes an exception class or its name")
    return class_name_of(error)


def _not_empty(name: str, text: str | None) -> str | None:
    if text == "":
        raise ValueError(f"{name}='': an empty filter matches everything; leave it out")
    return text


def _ms(when: datetime | None) -> float | None:
    return None if when is None else to_ms(when)


def _argument(given: Any) -> bytes | None:
    if given is None:
        return None
    pair = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else ()
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"argument={given!r}: this filter takes a pair, the name of a Logged parameter and its value")
    return fingerprint_line(pair[0], fingerprint(pair[1]))
