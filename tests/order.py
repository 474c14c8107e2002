"""The order of the tests if several processes run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")


def for_processes(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in as many equal shares as there are processes. Each process gets one share
    (`--dist worksteal`), and takes tests from the end of another one's when it has run its own.

    Each share begins with fault tests, then has other slow tests, and ends with short ones: a long
    test that begins when all others have ended would keep the other processes waiting. Half of the
    shares have the slow ones first: fault tests mostly wait, and these compute.
    """
    kinds: list[list[pytest.Item]] = [[], [], []]
    for item in items:
        kinds[_kind(item)].append(item)
    ordered: list[pytest.Item] = []
    for number, (waiting, computing, short) in enumerate(
        zip(*(_parts(kind, processes) for kind in kinds), strict=True)
    ):
        ordered += (*waiting, *computing, *short) if number % 2 else (*computing, *waiting, *short)
    return ordered


def _kind(item: pytest.Item) -> int:
    if item.get_closest_marker("faults"):
        return 0
    return 1 if item.get_closest_marker("slow") else 2


def _parts(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """Neighbours stay together: they share fixtures."""
    return [items[len(items) * at // count : len(items) * (at + 1) // count] for at in range(count)]
