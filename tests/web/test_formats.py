"""How values read on a page."""

from datetime import UTC, datetime, timedelta

import pytest

from docket.web.pages.formats import anchor, duration, exact, moment, percent, rate, relative, shortened, since, size

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((None, "–"), (0.0, "0 ms"), (0.0004, "0.4 ms"), (0.05, "50 ms"), (1.25, "1.2 s"), (42, "42 s")),
        *((150, "2 min"), (7300, "2 h"), (timedelta(days=3), "3 d")),
    ],
)
def test_durations_are_short(value: float | timedelta | None, words: str) -> None:
    assert duration(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "now"), (3, "3 s ago"), (-3, "in 3 s"), (90, "90 s ago"), (-7300, "in 2 h")]
)
def test_times_are_relative_to_now(seconds: float, words: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds), NOW) == words


def test_a_time_has_both_forms_and_its_whole_self() -> None:
    text = moment(NOW - timedelta(minutes=3), NOW)
    assert 'datetime="2026-01-31T11:57:00+00:00"' in text
    assert 'title="2026-01-31 11:57:00 UTC"' in text
    assert '<span class="rel">3 min ago</span>' in text
    assert moment(None) == since(None) == "–"
    assert exact(NOW) == "2026-01-31 12:00:00.000 UTC"


def test_long_texts_are_cut_and_hostile_ones_escaped() -> None:
    assert shortened("<b>") == "&lt;b&gt;"
    assert shortened("a" * 100, 10) == f'<span title="{"a" * 100}">aaaaaaaaa…</span>'
    assert "\u202e" not in shortened("\u202egnp")


@pytest.mark.parametrize(
    ("value", "words"), [(None, "–"), (0.0, "0 %"), (0.0004, "< 0.1 %"), (0.015, "1.5 %"), (0.5, "50 %"), (1, "100 %")]
)
def test_shares_are_percentages(value: float | None, words: str) -> None:
    assert percent(value) == words


def test_rates_and_sizes_keep_the_digits_that_matter() -> None:
    assert [rate(value) for value in (None, 0, 0.25, 9.95, 1234.5)] == ["–", "0", "0.2", "9.9", "1,234"]
    assert [size(value) for value in (None, 0, 1023, 1536, 20 << 20)] == ["–", "0 B", "1023 B", "1.5 KiB", "20 MiB"]


def test_an_anchor_is_a_name_whatever_the_text() -> None:
    assert anchor("a b<>") == anchor("a b<>") != anchor("")
    assert anchor("\ud800").isalnum()
