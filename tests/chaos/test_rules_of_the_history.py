"""The rule about the history of finished runs, with good and bad histories of chaos runs."""

from __future__ import annotations

from typing import Any

from chaos.rules.finished_runs import the_history_equals_the_records

from .story import Story, assert_bad, assert_good

A = ["plain", "a", "succeeded", 1, False]
RETRIED = ["retried", "b", "retried", 1, True]
B = ["retried", "b", "succeeded", 2, False]


def story_with(*runs: list[Any], plain: dict[str, int] | None = None, retried: dict[str, int] | None = None) -> Story:
    """One task that completed at once, and one that completed after a retry."""
    story = Story().run(1, 2, "a").run(1, 2, "b", "retried", epoch=2, how="failed")
    story.run(3, 4, "b", "retried", epoch=3, attempt=2)
    story.record("a", generation=1, attempt=1)
    story.record("b", function="retried", generation=1, attempt=2)
    counts = {"plain": plain or {"succeeded": 1}, "retried": retried or {"retried": 1, "succeeded": 1}}
    return story.note(91, "main", "statistics", functions=counts).note(92, "main", "finished_runs", runs=list(runs))


def test_a_history_that_equals_the_records_is_right() -> None:
    assert_good(the_history_equals_the_records, story_with(A, RETRIED, B))


def test_samples_may_be_fewer() -> None:
    assert_good(the_history_equals_the_records, story_with(A, RETRIED, B, plain={"succeeded": 900}))


def test_failures_beyond_the_bound_may_be_missing() -> None:
    failures = [["plain", f"k{number}", "failed", 1, True] for number in range(20)]
    counts = {"succeeded": 1, "failed": 900}
    assert_good(the_history_equals_the_records, story_with(A, RETRIED, B, *failures, plain=counts))
    assert_bad(
        the_history_equals_the_records,
        story_with(A, RETRIED, B, *failures[1:], plain=counts),
        "the history has 19 failures of plain, 900 were counted",
    )


def test_a_failure_that_is_missing_is_found() -> None:
    assert_bad(the_history_equals_the_records, story_with(A, B), "0 failures of retried, 1 were counted")


def test_a_function_without_a_sample_is_found() -> None:
    assert_bad(the_history_equals_the_records, story_with(RETRIED, B), "0 other endings of plain, 1 were counted")


def test_an_ending_that_is_there_twice_is_found() -> None:
    assert_bad(
        the_history_equals_the_records,
        story_with(A, A, RETRIED, B, plain={"succeeded": 2}),
        "attempt 1 of a is 2 times in the history as succeeded",
    )


def test_more_endings_than_were_counted_are_found() -> None:
    other = ["plain", "z", "succeeded", 1, False]
    assert_bad(the_history_equals_the_records, story_with(A, other, RETRIED, B), "2 other endings of plain, 1 were")


def test_an_ending_that_the_record_contradicts_is_found() -> None:
    wrong = ["plain", "a", "cancelled", 1, False]
    assert_bad(the_history_equals_the_records, story_with(wrong, RETRIED, B), "a of plain as cancelled, its record as")
    late = ["retried", "b", "retried", 3, True]
    assert_bad(the_history_equals_the_records, story_with(A, late, B), "attempt 3 of b as retried, its record has 2")


def test_a_run_that_was_lost_again_and_again_is_right() -> None:
    lost = ["plain", "a", "lost", 1, True]
    assert_good(
        the_history_equals_the_records, story_with(A, lost, lost, RETRIED, B, plain={"succeeded": 1, "lost": 2})
    )
