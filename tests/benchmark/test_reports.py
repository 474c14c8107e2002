"""What a reader of the benchmark sees."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.chart import draw
from bench.figures import percentile
from bench.goals import GOALS, judge
from bench.publishing import BEGIN, END, publish
from bench.results import Results
from bench.systems import SYSTEMS
from bench.tables import render
from lint.prose import too_wide


def results_of(**samples: dict[str, list[float]]) -> Results:
    return Results(
        about={"date": "today", "machine": "a <small> one", "server": "Valkey 9.1.2, TCP on the loopback"},
        versions={"docket": {"docket": "1.0"}, "arq": {"arq": "0.28"}},
        settings={"docket": "defaults", "arq": "defaults"},
        samples=dict(samples),
    )


def goal(measure: str):
    return next(goal for goal in GOALS if goal.measure == measure)


def test_a_percentile_is_a_value_that_was_measured():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(value) for value in range(1, 101)], 0.99) == 99.0
    assert percentile([5.0], 0.99) == 5.0


def test_the_table_shows_the_median_and_the_best_of_several_rounds():
    text = render(results_of(drain_10={"docket": [9_000.0, 7_000.0, 8_000.0]}, late_p50={"docket": [3.0, 1.0, 2.0]}))
    assert "| **docket** | 8,000 (9,000) |" in text
    assert "| **docket** | 2.0 (1.0) |" in text


def test_a_peer_that_failed_stays_in_the_table_with_its_reason():
    results = results_of(drain_10={"docket": [9_000.0]})
    results.fail("drain_10", "arq", "not installed: no network")
    text = render(results)
    assert "| arq | failed<sup>1</sup> |" in text
    assert "1. not installed: no network" in text


def test_a_peer_that_failed_in_one_round_only_is_marked():
    results = results_of(drain_10={"docket": [9_000.0], "arq": [100.0, 200.0]})
    results.fail("drain_10", "arq", "the worker ended: killed")
    assert "in some rounds: the worker ended: killed" in render(results)


def test_tasks_that_ran_twice_are_told():
    assert "arq, concurrency 100: 7 in one round" in render(results_of(repeats_100={"arq": [0.0, 7.0]}))


def test_the_settings_of_every_system_are_stated():
    for system in SYSTEMS:
        assert len(system.settings) > 40, system.name


def test_a_goal_counts_as_reached_only_if_both_its_conditions_hold():
    far_ahead = results_of(drain_100={"docket": [12_000.0], "arq": [1_000.0], "bare": [24_000.0]})
    verdict = judge(far_ahead, goal("drain_100"))
    assert (verdict.reached, verdict.best_peer, verdict.ratio, verdict.limit_ratio) == (True, "arq", 12.0, 0.5)
    too_close = results_of(drain_100={"docket": [12_000.0], "arq": [4_000.0]})
    assert judge(too_close, goal("drain_100")).reached is False
    too_slow = results_of(drain_100={"docket": [9_000.0], "arq": [100.0]})
    assert judge(too_slow, goal("drain_100")).reached is False


def test_where_less_is_better_the_ratio_still_says_how_many_times_as_good_we_are():
    verdict = judge(results_of(latency_p50={"docket": [1.0], "arq": [250.0]}), goal("latency_p50"))
    assert (verdict.reached, verdict.ratio) == (True, 250.0)


def test_a_goal_without_a_figure_is_left_open():
    assert judge(results_of(), goal("drain_10")).reached is None
    assert judge(results_of(enqueue_one={"docket": [2_000.0]}), goal("enqueue_one")).reached is None


def test_the_chart_is_a_picture_of_all_systems_with_figures():
    picture = ElementTree.fromstring(
        draw(results_of(drain_100={"docket": [9_000.0], "arq": [90.0], "bare": [20_000.0]}))
    )
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[2:8] == ["docket", "9,000", "arq", "90", "bare limit", "20,000"]


def test_publishing_replaces_only_what_lies_between_the_marks(tmp_path: Path):
    page = tmp_path / "benchmarks.md"
    page.write_text(f"Before.\n{BEGIN}\nold figures\n{END}\nAfter.\n")
    publish(results_of(drain_10={"docket": [9_000.0]}), page)
    text = page.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("\nAfter.\n")
    assert "old figures" not in text
    assert "9,000" in text
    assert Results.load(tmp_path / "benchmarks.json").median("drain_10", "docket") == 9_000.0
    assert (tmp_path / "benchmarks.svg").exists()


def test_published_prose_is_wrapped_like_the_page_around_it(tmp_path: Path):
    page = tmp_path / "benchmarks.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    results = results_of(drain_10={"docket": [9_000.0]})
    results.settings["docket"] = "Every task has a record with its state. " * 5
    publish(results, page)
    assert not list(too_wide(page.read_text()))


def test_publishing_to_a_page_without_marks_says_what_is_missing(tmp_path: Path):
    page = tmp_path / "benchmarks.md"
    page.write_text("No marks.\n")
    with pytest.raises(ValueError, match="lacks the lines"):
        publish(results_of(), page)
