"""The order of the tests if several processes run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")


def for_processes(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in as many equal shares as there are processes. Each process gets one share
    (`--dist worksteal`), and takes tests from the end of another one's when it has run its own.

    Fault tests mostly wait, and other slow tests mostly compute. So half of the shares begin with
    the first kind and half with the second, and both cores have work. Short tests are last: a long
    one that begins when all others have ended would keep the processes waiting.
    """
    waiting = [item for item in items if item.get_closest_marker("faults")]
    computing = [item for item in items if _is_slow(item) and not item.get_closest_marker("faults")]
    short = [item for item in items if not _is_slow(item) and not item.get_closest_marker("faults")]
    beginnings: list[list[pytest.Item]] = [[] for _ in range(processes)]
    half = max(processes // 2, 1)
    for kind, shares in ((waiting, beginnings[:half]), (computing, beginnings[half:] or beginnings)):
        for share, part in zip(shares, _parts(kind, len(shares)), strict=True):
            share += part
    size = len(items) / processes
    ordered, used = list[pytest.Item](), 0
    for number, share in enumerate(beginnings, 1):
        ordered += share
        until = max(round(size * number) - len(ordered), 0) + used
        ordered += short[used:until]
        used = min(until, len(short))
    return ordered + short[used:]


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _parts(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """Neighbours stay together: they share fixtures."""
    return [items[len(items) * at // count : len(items) * (at + 1) // count] for at in range(count)]
