"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from docket.model.amounts import read_duration, write_duration


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("5s", timedelta(seconds=5)),
        ("250ms", timedelta(milliseconds=250)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1:30", timedelta(minutes=1, seconds=30)),
        ("1:02:03", timedelta(hours=1, minutes=2, seconds=3)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5h", timedelta(hours=1, minutes=30)),
        (" 5 S ", timedelta(seconds=5)),
        ("1d", timedelta(days=1)),
        ("2w", timedelta(weeks=2)),
        ("90", timedelta(seconds=90)),
        ("0.25", timedelta(milliseconds=250)),
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        ("1:30.5", timedelta(minutes=1, seconds=30.5)),
    ],
)
def test_a_duration_reads_as_people_write_it(text: str, length: timedelta) -> None:
    assert read_duration(text) == length


@pytest.mark.parametrize(
    "text", ["", " ", "x", "5 parsecs", "s", "-5s", "1:", ":30", "1h 5x", "5ss", "1e3", "nan", "１s："]
)
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="250ms, 5s, 10m, 2h or 1:30"):
        read_duration(text)


def test_a_duration_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        read_duration("99999999999999w")


@pytest.mark.parametrize("length", [timedelta(0), timedelta(microseconds=1), timedelta(minutes=5), timedelta(days=400)])
def test_a_duration_that_was_written_reads_back(length: timedelta) -> None:
    assert read_duration(write_duration(length)) == length
