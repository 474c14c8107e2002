"""What a page of the dashboard is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from .visit import Visit

Answering = Callable[["Visit"], Awaitable[Response]]
Following = Callable[["Visit"], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page about a docket, at `/{docket}/{path}`. Pages with a title are in the navigation.

    `live` makes the HTML of the parts that change. It is called about once a second for all tabs
    that show the same, and they receive it over their streams.
    """

    path: str
    answer: Answering
    title: str | None = None
    live: Following | None = None
