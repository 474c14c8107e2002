"""The rules about threads and children, each with a good and a bad history."""

from __future__ import annotations

import pytest

from chaos.rules import runtimes, starts, withdrawals

from .story import Story, assert_bad, assert_good


def in_thread(story: Story, at: float, until: float | None, *, limit: float | None = 0.5, on: str = "w0-1") -> Story:
    return story.run(at, until, "a", "overdue_in_thread", on=on, runtime="thread", limit=limit)


def in_child(
    story: Story, at: float, until: float | None, *, limit: float | None = None, on: str = "w0-1", epoch: int = 1
) -> Story:
    return story.run(at, until, "a", "in_child", on=on, epoch=epoch, runtime="child", pid=7, limit=limit)


def gone(story: Story, at: float, *, alive_at: float | None = None, worker: str = "w0-1") -> Story:
    return story.note(
        at, "main", "child gone", worker=worker, pid=7, alive_at=at - 0.1 if alive_at is None else alive_at
    )


# Runs that were given up


def test_a_run_that_was_given_up_may_fail_and_a_run_in_time_may_be_done() -> None:
    rule = runtimes.no_run_that_was_given_up_is_recorded_as_done
    given_up = in_thread(Story(), 1, 4).note(4, "w0-1", "given up", run="w0-1.1")
    assert_good(rule, given_up.record("a", "failed", "overdue_in_thread"))
    assert_good(rule, in_thread(Story(), 1, 1.4).record("a", function="overdue_in_thread"))
    assert_good(rule, gone(in_child(Story(), 1, None), 2).record("a", "failed", "in_child"))
    assert_good(rule, in_child(Story(), 1, 2).record("a", function="in_child"))


def test_a_thread_that_was_given_up_and_is_recorded_as_done_is_found() -> None:
    story = in_thread(Story(), 1, 4, limit=None).note(3.9, "w0-1", "given up", run="w0-1.1")
    rule = runtimes.no_run_that_was_given_up_is_recorded_as_done
    assert_bad(rule, story.record("a", function="overdue_in_thread"), "which had been given up")


def test_a_killed_child_whose_run_is_recorded_as_done_is_found() -> None:
    story = gone(in_child(Story(), 1, None), 2).record("a", function="in_child")
    assert_bad(runtimes.no_run_that_was_given_up_is_recorded_as_done, story, "did not reach its end")


def test_a_run_that_is_recorded_as_done_after_its_time_out_is_found() -> None:
    story = in_thread(Story(), 1, 3).record("a", function="overdue_in_thread")
    assert_bad(runtimes.no_run_that_was_given_up_is_recorded_as_done, story, "took 2.00 s of 0.5 s")


def test_another_run_may_finish_the_work_of_a_run_that_was_given_up() -> None:
    story = in_thread(Story(), 1, 4).note(4, "w0-1", "given up", run="w0-1.1")
    story.run(2, 2.2, "a", "overdue_in_thread", on="w1-1", epoch=2, runtime="thread", limit=0.5)
    story.record("a", function="overdue_in_thread", epoch=2)
    assert_good(runtimes.no_run_that_was_given_up_is_recorded_as_done, story)


# Children and their workers


def test_a_child_may_outlive_its_worker_by_a_moment() -> None:
    story = gone(Story().exited(5, "w0-1", -9), 6.5)
    assert_good(runtimes.no_child_outlives_its_worker, story)
    # Nobody looked for a while: it may have ended long before.
    assert_good(runtimes.no_child_outlives_its_worker, gone(Story().exited(5, "w0-1", -9), 9, alive_at=5.1))


@pytest.mark.parametrize("kind", ["child gone", "child left"])
def test_a_child_that_outlives_its_worker_is_found(kind: str) -> None:
    story = Story().exited(5, "w0-1", -9).note(8, "main", kind, worker="w0-1", pid=7, alive_at=7.9)
    assert_bad(runtimes.no_child_outlives_its_worker, story, "child 7 outlived w0-1 by 2.90 s")


def test_a_child_of_a_worker_that_lives_may_live_too() -> None:
    assert_good(runtimes.no_child_outlives_its_worker, gone(Story(), 60))


def test_a_child_has_two_seconds_after_its_time_out() -> None:
    rule = runtimes.a_time_out_stops_the_child
    assert_good(rule, gone(in_child(Story(), 1, None, limit=0.4), 3.6))
    assert_good(rule, in_child(Story(), 1, 1.5, limit=0.4))


def test_a_worker_that_was_harmed_may_stop_its_child_later() -> None:
    rule = runtimes.a_time_out_stops_the_child
    paused = gone(in_child(Story(), 1, None, limit=0.4), 9).fault(2, 6.5, "worker paused", "w0-1")
    assert_good(rule, paused)
    blocked = gone(in_child(Story(), 1, None, limit=0.4), 9).run(1.1, 4, "b", "block_loop", epoch=2)
    assert_good(rule, blocked)


def test_a_child_that_goes_on_after_its_time_out_is_found() -> None:
    story = gone(in_child(Story(), 1, None, limit=0.4), 9)
    assert_bad(runtimes.a_time_out_stops_the_child, story, "went on for 8.00 s, its Timeout is 0.4 s")


# Abandoned threads


def counted(story: Story, abandoned: dict[float, int]) -> Story:
    for tick in range(12):
        at = 0.3 + tick / 2
        number = next((count for since, count in reversed(abandoned.items()) if at >= since), 0)
        story.note(at, "w0-1", "health", problem=None, free=8, abandoned=number)
    return story


def test_threads_that_are_counted_while_they_are_abandoned_are_good() -> None:
    rule = runtimes.abandoned_threads_are_counted
    assert_good(rule, counted(in_thread(Story(), 0.1, 4.5), {0.6: 1, 4.5: 0}))
    # It returned in time, or cannot be said to have been given up.
    assert_good(rule, counted(in_thread(Story(), 0.1, 0.4), {}))
    assert_good(rule, counted(in_thread(Story(), 0.1, 4.5, limit=None), {}))
    assert_good(rule, counted(in_thread(Story(), 0.1, 4.5, limit=None), {1: 1, 4.5: 0}))


def test_an_abandoned_thread_that_is_not_counted_is_found() -> None:
    story = counted(in_thread(Story(), 0.1, 4.5), {})
    found = story.found_by(runtimes.abandoned_threads_are_counted)
    assert found
    assert "w0-1 counted 0 abandoned threads, of 1 to 1" in found[0].text


def test_a_thread_that_is_counted_after_its_return_is_found() -> None:
    story = counted(in_thread(Story(), 0.1, 2.0), {0.6: 1})
    found = story.found_by(runtimes.abandoned_threads_are_counted)
    assert found
    assert "w0-1 counted 1 abandoned threads, of 0 to 0" in found[0].text


def test_an_event_loop_that_was_held_up_may_count_late() -> None:
    story = in_thread(Story(), 0.1, 9)
    for at, number in ((0.3, 0), (3.0, 0), (3.5, 1)):
        story.note(at, "w0-1", "health", problem=None, free=8, abandoned=number)
    assert_good(runtimes.abandoned_threads_are_counted, story)


# The rules about all runs


def taken_over(*, runtime: str, until: float) -> Story:
    """The worker wakes at 6, and its run has gone to another worker at 5."""
    story = Story().run(1, until, "a", runtime=runtime, pid=7).fault(2, 6, "worker paused", "w0-1")
    return story.run(5, 20, "a", on="w1-1", epoch=2, runtime=runtime, pid=8)


def test_only_a_thread_may_go_on_beside_the_run_that_follows_it() -> None:
    rule = starts.runs_of_one_task_do_not_overlap
    assert_good(rule, taken_over(runtime="thread", until=19))
    assert_good(rule, taken_over(runtime="child", until=10.5))
    assert_bad(rule, taken_over(runtime="child", until=11.5), "at once")
    assert_bad(rule, taken_over(runtime="loop", until=10.5), "at once")


def test_only_a_thread_may_go_on_after_a_cancel() -> None:
    def cancelled(runtime: str, until: float) -> Story:
        story = Story().add(1, "a").request(2, "cancel", "done", key="a")
        return story.run(1.5, until, "a", runtime=runtime, pid=7)

    rule = withdrawals.cancelled_work_does_not_run
    assert_good(rule, cancelled("thread", 20))
    assert_good(rule, cancelled("child", 8))
    assert_bad(rule, cancelled("child", 20), "still ran long after its cancel")


def test_a_second_start_in_a_child_needs_an_explanation_too() -> None:
    story = gone(in_child(Story(), 1, None), 2)
    assert_bad(starts.every_duplicate_start_is_explained, in_child(story, 3, 4, on="w1-1", epoch=2), "no fault harmed")
    killed = in_child(Story(), 1, None).fault(2, 2, "worker killed", "w0-1")
    assert_good(starts.every_duplicate_start_is_explained, in_child(killed, 5, 6, on="w1-1", epoch=2))
