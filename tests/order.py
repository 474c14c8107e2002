"""The order of the tests if several processes run them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest


def for_processes(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in as many equal shares as there are processes. Each process gets one share
    (`--dist worksteal`), and takes tests from the end of another one's when it has run its own.

    Each share begins with fault tests, then has other slow tests, and ends with short ones: a long
    test that begins when all others have ended would keep the other processes waiting. So the long
    ones are dealt like cards, and short ones fill the shares up. Half of the shares have the slow
    ones first: fault tests mostly wait, and these compute.
    """
    waiting, computing, short = ([item for item in items if _kind(item) == kind] for kind in range(3))
    dealt = [_dealt(waiting, processes), _dealt(computing, processes)[::-1]]
    ordered: list[pytest.Item] = []
    for number, (long, other) in enumerate(zip(*dealt, strict=True)):
        ordered += (*long, *other) if number % 2 else (*other, *long)
        missing = len(items) * (number + 1) // processes - len(ordered)
        ordered += short[:missing]
        short = short[missing:]
    return ordered


def _kind(item: pytest.Item) -> int:
    if item.get_closest_marker("faults"):
        return 0
    return 1 if item.get_closest_marker("slow") else 2


def _dealt(items: Sequence[pytest.Item], processes: int) -> list[list[pytest.Item]]:
    """The tests for each process. Neighbours that share a fixture stay together."""
    groups = [list(group) for _, group in groupby(items, _shared)]
    return [[item for group in groups[number::processes] for item in group] for number in range(processes)]


def _shared(item: pytest.Item) -> object:
    """The package or module whose fixture the test uses, or the test itself."""
    fixtures = getattr(item, "_fixtureinfo", None)
    for definitions in fixtures.name2fixturedefs.values() if fixtures else ():
        if definitions[-1].scope in ("package", "module"):
            return definitions[-1].baseid if definitions[-1].scope == "package" else item.path
    return item
