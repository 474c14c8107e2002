"""Turns the errors that a server answers with into exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    TryAgainError,
)

ParseError = Callable[[str], Exception]

# redis-py before 6 knows these only on the connections of its own cluster client.
_OF_CLUSTERS: dict[str, Callable[[str], Exception]] = {
    "ASK": AskError,
    "TRYAGAIN": TryAgainError,
    "MOVED": MovedError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "MASTERDOWN": MasterDownError,
}


def error_parser(parser: Any) -> ParseError:
    """A parser that turns the text of an error into an exception, the same for every release of
    redis-py."""
    parse: ParseError = parser.parse_error
    return parse if "MOVED" in parser.EXCEPTION_CLASSES else _with_clusters(parse)


def _with_clusters(parse: ParseError) -> ParseError:
    def parse_error(text: str) -> Exception:
        code, _, rest = text.partition(" ")
        known = _OF_CLUSTERS.get(code)
        return parse(text) if known is None else known(rest)

    return parse_error
