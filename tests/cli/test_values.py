"""Values of strikes as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from docket.model.typed_texts import better_type, read_range, read_value

NAME = "c9bf9e57-1685-4c89-bafb-ff5af830be8a"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("hello", "hello"),
        ("5", "5"),
        ("", ""),
        ("http://example.com", "http://example.com"),
        ("a:b:c", "a:b:c"),
        ("str:int:5", "int:5"),
        ("int:5", 5),
        ("INT:-5", -5),
        ("float:1.5", 1.5),
        ("bool:true", True),
        ("bool:No", False),
        ("none:", None),
        ("date:2026-01-31", date(2026, 1, 31)),
        ("datetime:2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("datetime.datetime:2026-01-31T12:00:00", datetime(2026, 1, 31, 12)),
        ("timedelta:1h30m", timedelta(hours=1, minutes=30)),
        ("datetime.timedelta:90", timedelta(seconds=90)),
        (f"uuid:{NAME}", UUID(NAME)),
        (f"uuid.UUID:{NAME}", UUID(NAME)),
        ("decimal.Decimal:1.50", Decimal("1.50")),
    ],
)
def test_a_value_is_text_unless_a_type_stands_before_it(text: str, value: Any) -> None:
    read = read_value(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["int:x", "int:", "float:x", "bool:maybe", "none:x", "date:2026", "uuid:1", "decimal:x"]
)
def test_a_value_that_is_not_of_its_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read_value(text)


def test_a_range_has_two_values_of_one_type() -> None:
    assert read_range("int:1..5") == (1, 5)
    assert read_range("a..f") == ("a", "f")
    assert read_range("date:2026-01-01..2026-02-01") == (date(2026, 1, 1), date(2026, 2, 1))


@pytest.mark.parametrize("text", ["int:5", "5", "int:1..", "..5", "int:1..x"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read_range(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("5", "int"),
        ("1.5", "float"),
        ("true", "bool"),
        (NAME, "uuid"),
        ("2026-01-31", "date"),
        ("hello", None),
        ("int:5", None),
    ],
)
def test_text_that_looks_like_something_else_is_noticed(text: str, name: str | None) -> None:
    assert better_type(text) == name
