"""Which values a limit counts together: those that are equal, in every process."""

import enum
import json
import os
import subprocess
import sys
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import pytest

import docket
from docket import ConcurrencyLimit
from docket.dependencies.fingerprints import fingerprint
from tests.limits.helpers import open_docket
from tests.run_log import RunLog
from tests.running import run_with_defaults


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


@dataclass
class Address:
    street: str
    tags: set[str]


Pair = namedtuple("Pair", "a b")
MOMENT = datetime(2026, 1, 1, 12, tzinfo=UTC)

SAME: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0, False),
    (1, Level.LOW),
    (2.5, Decimal("2.5")),
    (2.5, Fraction(5, 2)),
    (float("inf"), Decimal("Infinity")),
    (10**30, Decimal(10**30)),
    ("red", Colour.RED),
    (b"x", bytearray(b"x")),
    ((1, 2), Pair(1, 2)),
    ({1, 2}, frozenset([2, 1])),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, OrderedDict(a=1)),
    (MOMENT, MOMENT.astimezone(timezone(timedelta(hours=5)))),
    (Address("High Street", {"a", "b", "c"}), Address("High Street", {"c", "b", "a"})),
    (uuid.UUID(int=5), uuid.UUID("00000000-0000-0000-0000-000000000005")),
    ([[1, {"x": ()}]], [[True, {"x": ()}]]),
]

DIFFERENT: list[Any] = [
    None,
    "None",
    1,
    "1",
    b"1",
    0,
    "",
    (),
    [],
    {},
    set(),
    (1,),
    [1],
    {1},
    {1: None},
    ("ab", "c"),
    ("a", "bc"),
    ("abc",),
    [("a",), "b"],
    [("a", "b")],
    "a:b",
    "a\nb",
    1.5,
    -1,
    10**30,
    10**30 + 1,
    float("nan"),
    Side.LEFT,
    Side.RIGHT,
    MOMENT,
    MOMENT.replace(tzinfo=None),
    MOMENT.isoformat(),
    date(2026, 1, 1),
    timedelta(seconds=1),
    Address("a", set()),
    Address("b", set()),
    uuid.UUID(int=1),
    Path("a"),
    "\udc00",
    int,
    str,
    len,
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=[str(n) for n in range(len(SAME))])
def test_equal_values_count_together(one: Any, other: Any) -> None:
    assert one == other
    assert fingerprint(one) == fingerprint(other)


def test_different_values_do_not() -> None:
    prints = {fingerprint(value): value for value in DIFFERENT}
    assert len(prints) == len(DIFFERENT), [value for value in DIFFERENT if prints[fingerprint(value)] is not value]


def test_nothing_of_a_value_is_left_in_a_limit_s_name() -> None:
    for value in DIFFERENT:
        assert set(fingerprint(value)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_value_counts_the_same_in_every_process() -> None:
    program = (
        "import json, datetime, uuid, decimal\n"
        "from docket.dependencies.fingerprints import fingerprint\n"
        "words = {'a', 'b', 'c', 'd', 'e', 'f'}\n"
        "print(json.dumps([fingerprint(v) for v in (words, {w: {w} for w in words}, uuid.UUID(int=7), "
        "datetime.datetime(2026, 1, 1), decimal.Decimal('1.10'), ('x',))]))"
    )
    seen: set[str] = set()
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(docket.__file__).parents[1])}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
        )
        seen.add(done.stdout)
    assert len(seen) == 1
    assert len(set(json.loads(seen.pop()))) == 6


def test_what_has_no_state_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with open(os.devnull) as file:
        for value in (endless, (n for n in range(3)), file):
            with pytest.raises((TypeError, RecursionError)):
                fingerprint(value)


async def test_a_limit_works_for_values_that_cannot_be_hashed() -> None:
    run_log = RunLog()

    async def sync(where: Annotated[Any, ConcurrencyLimit(1)]) -> None:
        await run_log.nap(repr(where), "all")

    async with open_docket() as d:
        for _ in range(4):
            await d.add(sync)({"tags": ["a", "b"], "n": 1})
            await d.add(sync)({"n": True, "tags": ["a", "b"]})
        await run_with_defaults(d)
    assert len(run_log.began) == 8
    assert run_log.most_at_once["all"] == 1
