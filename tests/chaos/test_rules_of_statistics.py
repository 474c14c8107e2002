"""The rule about statistics, with good and bad histories."""

from __future__ import annotations

from typing import Any

from chaos.rules.statistics import the_statistics_equal_the_records

from .story import Story, assert_bad, assert_good


def story_with(**functions: dict[str, int]) -> Story:
    """Two tasks that completed, one of them after a retry, and one that was cancelled."""
    story = Story().run(1, 2, "a").run(1, 2, "b", "retried", epoch=2, how="failed")
    story.run(3, 4, "b", "retried", epoch=3, attempt=2)
    once: dict[str, Any] = {"generation": 1, "attempt": 1}
    story.record("a", **once).record("c", "cancelled", **once)
    story.record("b", function="retried", generation=1, attempt=2)
    return story.note(91, "main", "statistics", functions=functions)


def test_counts_that_equal_the_records_are_right() -> None:
    story = story_with(plain={"succeeded": 1, "cancelled": 1}, retried={"retried": 1, "succeeded": 1})
    assert_good(the_statistics_equal_the_records, story)


def test_an_ending_that_is_not_counted_is_found() -> None:
    story = story_with(plain={"succeeded": 1}, retried={"retried": 1, "succeeded": 1})
    assert_bad(the_statistics_equal_the_records, story, "0 tasks of plain count as cancelled, 1 have such a record")


def test_an_ending_that_is_counted_twice_is_found() -> None:
    story = story_with(plain={"succeeded": 1, "dropped": 2}, retried={"retried": 1, "succeeded": 1})
    assert_bad(the_statistics_equal_the_records, story, "2 tasks of plain count as cancelled")


def test_a_retry_that_is_not_counted_is_found() -> None:
    story = story_with(plain={"succeeded": 1, "cancelled": 1}, retried={"succeeded": 1})
    assert_bad(the_statistics_equal_the_records, story, "0 retries of retried are counted, 1 happened")


def test_a_run_that_did_not_return_cannot_count_as_succeeded() -> None:
    story = Story().note(91, "main", "statistics", functions={"chain": {"succeeded": 1}})
    story.record("chain-0", "cancelled", "chain", generation=1, attempt=1)
    assert_bad(the_statistics_equal_the_records, story, "1 runs of chain count as succeeded, 0 returned")


def test_a_key_that_had_two_tasks_is_left_out() -> None:
    story = Story().run(1, 2, "a", "replaceable").run(3, 4, "a", "replaceable", epoch=2)
    story.record("a", function="replaceable", generation=2, attempt=1)
    assert_good(
        the_statistics_equal_the_records,
        story.note(91, "main", "statistics", functions={"replaceable": {"succeeded": 2}}),
    )
