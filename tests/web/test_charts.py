"""Charts: the shapes that templates draw."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docket.model.histograms import BOUNDS, Histogram
from docket.web.charts import Series, bars, heat_map, histogram_chart, hue, mirrored, strip
from docket.web.charts.heat_map import TimedHistogram
from docket.web.charts.scales import Hues, bucket_position, number, round_up, seconds

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
counts = st.lists(st.floats(0, 1e9), max_size=40)


def heights(path: str) -> list[float]:
    return [float(found) for found in re.findall(r"v(-?[\d.]+)", path)]


@given(counts, counts, st.integers(1, 40))
def test_bars_stay_inside_of_their_box(first: list[float], second: list[float], columns: int) -> None:
    chart = bars((Series("bad", first), Series("out", second)), columns)
    for shape in chart.shapes:
        assert all(-101.1 <= height <= 0 for height in heights(shape.path))
    both = mirrored((Series("in", first),), (Series("out", second),), columns)
    for shape in both.shapes:
        assert all(abs(height) <= 50.1 for height in heights(shape.path))


def test_a_value_that_is_almost_nothing_is_drawn_as_almost_nothing() -> None:
    for shape in bars((Series("out", [5e-324]),), 1).shapes:
        assert all(abs(height) <= 1 for height in heights(shape.path))


def test_a_chart_of_nothing_is_empty() -> None:
    assert bars((Series("out", ()),), 60).is_empty
    assert mirrored((Series("in", [0, 0]),), (Series("out", []),), 60).is_empty
    assert heat_map((), 60).is_empty
    assert histogram_chart(Histogram()).is_empty


def test_one_failure_among_thousands_is_visible() -> None:
    chart = bars((Series("bad", [1]), Series("out", [100_000])), 1)
    assert heights(chart.shapes[0].path) == [-1.0]


def test_the_last_values_are_at_the_right_end() -> None:
    chart = bars((Series("out", [1, 2]),), 10, ["first", "second"])
    assert [(hit.x, hit.words) for hit in chart.hits] == [(8, "first"), (9, "second")]


def test_a_heat_map_has_a_cell_for_each_bucket_and_minute() -> None:
    moments = [TimedHistogram(i, START + timedelta(minutes=i), Histogram({20: 100, 30 + i: 1})) for i in range(3)]
    chart = heat_map(moments, 5)
    assert sum(cells.path.count("M") for cells in chart.cells) == 6
    # The most frequent bucket is the darkest one, and a single run is still there.
    assert [cells.level for cells in chart.cells] == [1, 5]
    assert chart.p50.count("L") == 2
    assert "12:00: 101, half within" in chart.hits[0].words


def test_the_line_of_a_percentile_breaks_where_nothing_ended() -> None:
    moments = [TimedHistogram(i, START, Histogram({20: 5})) for i in (0, 1, 3)]
    chart = heat_map(moments, 5)
    assert (chart.p50.count("M"), chart.p50.count("L")) == (2, 1)


@given(st.dictionaries(st.integers(0, len(BOUNDS)), st.integers(1, 10**6), min_size=1))
def test_a_histogram_has_a_bar_for_each_bucket(found: dict[int, int]) -> None:
    chart = histogram_chart(Histogram(found))
    assert chart.path.count("M") == len(found) == len(chart.hits)
    assert all(0 <= hit.x < chart.columns for hit in chart.hits)
    assert chart.p50 is not None
    assert -0.01 <= chart.p50 <= chart.columns


def test_a_strip_names_its_hours_and_counts() -> None:
    chart = strip(START, timedelta(minutes=15), {"hue-1": [1, 2], "hue-2": [3]}, 96)
    assert chart.bars.hits[0].words == "12:00 to 12:15 UTC: 4"
    assert [tick.words for tick in chart.hours] == ["15:00", "18:00", "21:00", "00:00", "03:00", "06:00", "09:00"]


@given(st.floats(1e-9, 1e12))
def test_an_axis_ends_at_a_round_number_above_all_values(value: float) -> None:
    assert value <= round_up(value) * 1.001 <= value * 10.1


@given(st.floats(0, 1e9))
def test_a_time_has_a_place_among_the_buckets(value: float) -> None:
    assert 0 <= bucket_position(value) <= len(BOUNDS)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0001, "100 µs"),
        (0.001, "1 ms"),
        (0.1, "100 ms"),
        (1, "1 s"),
        (100, "1.67 min"),
        (10000, "2.78 h"),
        (1e6, "11.6 d"),
    ],
)
def test_durations_on_an_axis_are_short(value: float, words: str) -> None:
    assert seconds(value) == words


@pytest.mark.parametrize(("value", "words"), [(0.5, "0.5"), (20, "20"), (1500, "1,500"), (20_000, "20k"), (3e6, "3M")])
def test_numbers_on_an_axis_are_short(value: float, words: str) -> None:
    assert number(value) == words


@given(st.text())
def test_a_name_keeps_its_colour(name: str) -> None:
    assert 0 <= hue(name) == hue(name) < 8


def test_the_first_names_have_different_colours() -> None:
    hues = Hues()
    assert {hues.of(f"function {number}") for number in range(8)} == set(range(8))


def test_names_without_end_take_no_memory_without_end() -> None:
    hues = Hues()
    for name in range(5_000):
        hues.of(str(name))
    assert len(hues._known) == 1_000
