"""The rules about runs: starts, overlaps, times,
limits, chains. Each has a good and a bad history."""

from __future__ import annotations

import itertools

import pytest

from chaos.rules import chains, due_times, limits, starts
from chaos.work import ENDLESS
from chaos.work.limits import MOST_AT_ONCE, MOST_PER_WINDOW

from .story import WALL, Story, assert_bad, assert_good


def test_what_runs_was_added_perhaps_without_an_answer() -> None:
    story = Story().add(1, "a").run(2, 3, "a").add(1, "b", how=None).run(2, 3, "b", epoch=2)
    assert_good(starts.nothing_runs_that_was_never_enqueued, story.run(2, 3, "tick", "tick", epoch=3, step=0))


def test_a_run_that_nobody_added_is_found() -> None:
    assert_bad(starts.nothing_runs_that_was_never_enqueued, Story().run(2, 3, "a"), "which nobody added")


def test_a_run_whose_add_was_refused_is_found() -> None:
    story = Story().add(1, "a", how="refused").run(2, 3, "a")
    assert_bad(starts.nothing_runs_that_was_never_enqueued, story, "was refused")


@pytest.mark.parametrize(
    ("kind", "target", "until"),
    [
        ("worker killed", "w0-1", 3.0),
        ("worker stopped", "w0-1", 6.0),
        ("worker paused", "w0-1", 6.0),
        ("network gone", "w0", 6.0),
    ],
)
def test_a_fault_on_the_earlier_owner_explains_a_second_start(kind: str, target: str, until: float) -> None:
    story = Story().run(2, None, "a").fault(3, until, kind, target).run(6, 7, "a", on="w1-1", epoch=2)
    assert_good(starts.every_duplicate_start_is_explained, story)


@pytest.mark.parametrize("seconds", [0.6, 2.0])
def test_a_machine_that_was_too_busy_explains_a_second_start(seconds: float) -> None:
    story = Story().run(2, None, "a").note(5, "w0-1", "stalled", seconds=seconds)
    assert_good(starts.every_duplicate_start_is_explained, story.run(6, 7, "a", on="w1-1", epoch=2))


@pytest.mark.parametrize(
    ("kind", "targets", "begin", "until"),
    [
        ("worker killed", ["w1-1"], 3.0, 3.0),  # another worker
        ("worker paused", ["w0-1"], 3.0, 3.3),  # too short
        ("worker killed", ["w0-1"], 8.0, 8.0),  # too late
        (
            "network gone",
            ["w0"],
            0.1,
            1.0,
        ),  # long before the claim
        ("connections reset", ["w0"], 3.0, 3.5),  # no reason to lose a lease
        ("server killed", [], 3.0, 5.0),
        ("server paused", [], 3.0, 5.0),
    ],
)
def test_other_faults_do_not_explain_a_second_start(kind: str, targets: list[str], begin: float, until: float) -> None:
    story = Story().run(4, 5, "a").fault(begin, until, kind, *targets).run(6, 7, "a", on="w1-1", epoch=2)
    assert_bad(starts.every_duplicate_start_is_explained, story, "no fault harmed w0-1")


def test_outages_that_follow_each_other_for_longer_than_the_grace_explain_a_second_start() -> None:
    def story(*outages: tuple[float, float]) -> Story:
        told = Story().run(1, 2, "a")
        for begin, until in outages:
            told.fault(begin, until, "server paused")
        return told.run(outages[-1][1] + 0.3, 20, "a", on="w1-1", epoch=2)

    rule = starts.every_duplicate_start_is_explained
    assert_good(rule, story((1.2, 3), (3.5, 7), (7.5, 9.5)))
    # One outage, however long, and outages with a pause in between, in which all workers renew.
    assert_bad(rule, story((1.2, 12)), "no fault harmed w0-1")
    assert_bad(rule, story((1.2, 3), (5.5, 7), (9.5, 12)), "no fault harmed w0-1")


def test_a_retry_and_the_next_step_of_a_chain_are_no_duplicates() -> None:
    story = Story().run(1, 2, "a").run(3, 4, "a", attempt=2, epoch=2)
    story.run(1, 2, "chain-0", "chain", step=1, epoch=3).run(3, 4, "chain-0", "chain", step=2, epoch=4)
    assert_good(starts.every_duplicate_start_is_explained, story)


def test_a_worker_that_wakes_has_a_moment_to_notice_that_its_run_is_stale() -> None:
    story = Story().run(1, 7, "a", how="cancelled").fault(2, 6, "worker paused", "w0-1")
    assert_good(starts.runs_of_one_task_do_not_overlap, story.run(5, 8, "a", on="w1-1", epoch=2))


def test_a_stale_run_that_goes_on_is_found() -> None:
    story = Story().run(1, 15, "a").fault(2, 6, "worker paused", "w0-1").run(5, 16, "a", on="w1-1", epoch=2)
    assert_bad(starts.runs_of_one_task_do_not_overlap, story, "at once, for 10.00 s")


def test_a_worker_that_is_paused_again_before_it_could_notice_gets_more_time() -> None:
    story = Story().run(4, 12, "a", how="cancelled").run(5, 8, "a", on="w1-1", epoch=2)
    story.fault(1, 3.5, "network gone", "w0").fault(4.5, 11, "worker paused", "w0-1")
    assert_good(starts.runs_of_one_task_do_not_overlap, story)


def test_runs_without_a_fault_do_not_overlap_at_all() -> None:
    story = Story().run(1, 5, "a").run(4.9, 6, "a", on="w1-1", epoch=2)
    assert_bad(starts.runs_of_one_task_do_not_overlap, story, "at once")


def test_tasks_that_start_on_time_are_good() -> None:
    story = Story().add(1, "a", due=3).run(3.001, 4, "a")
    story.run(1, 2, "b", "retried", epoch=2, how="failed").run(2.41, 3, "b", "retried", epoch=3, attempt=2)
    story.run(1, 1.1, "tick", "tick", step=1, epoch=4).run(1.4, 2, "tick", "tick", step=2, epoch=5)
    assert_good(due_times.nothing_starts_before_its_time, story)


def test_a_task_that_starts_too_early_is_found() -> None:
    story = Story().add(1, "a", due=3).run(2.9, 4, "a")
    assert_bad(due_times.nothing_starts_before_its_time, story, "before it is due")


def test_a_retry_that_starts_too_early_is_found() -> None:
    story = Story().run(1, 2, "a", "retried", how="failed").run(2.1, 3, "a", "retried", epoch=2, attempt=2)
    assert_bad(due_times.nothing_starts_before_its_time, story, "the delay of its retry")


def test_a_chain_that_goes_on_too_early_is_found() -> None:
    story = Story().run(1, 1.1, "tick", "tick", step=1).run(1.2, 2, "tick", "tick", step=2, epoch=2)
    assert_bad(due_times.nothing_starts_before_its_time, story, "its chain")


def test_as_many_runs_as_a_concurrency_limit_allows_are_good() -> None:
    story = Story()
    for number in range(MOST_AT_ONCE):
        story.run(1, 5, f"a{number}", "limited", epoch=number + 1, group=1)
    story.run(1, 5, "other", "limited", epoch=10, group=2).run(5.1, 6, "next", "limited", epoch=11, group=1)
    assert_good(limits.concurrency_limits_hold, story)


def test_one_run_more_than_a_concurrency_limit_allows_is_found() -> None:
    story = Story()
    for number in range(MOST_AT_ONCE + 1):
        story.run(1 + number, 5, f"a{number}", "limited", epoch=number + 1, group=1)
    assert_bad(limits.concurrency_limits_hold, story, "runs of group 1 at once")


def test_the_slot_of_a_worker_that_is_paused_too_long_may_be_taken_over() -> None:
    story = Story().fault(2, 6, "worker paused", "w0-1").run(1, 6.5, "a", "limited", group=1, how="cancelled")
    for number in range(MOST_AT_ONCE):
        story.run(5, 8, f"b{number}", "limited", on="w1-1", epoch=number + 2, group=1)
    assert_good(limits.concurrency_limits_hold, story)


def rated(claims: list[float], late: float = 0.0) -> Story:
    story = Story()
    for number, claimed in enumerate(claims):
        story.run(claimed + late, claimed + late + 0.01, f"a{number}", "rated", epoch=number + 1, claimed=claimed)
    return story


def test_runs_within_a_rate_are_good_and_late_starts_prove_nothing() -> None:
    assert_good(limits.rate_limits_hold, rated([1 + number * 0.1 for number in range(MOST_PER_WINDOW)]))
    bunched = Story()
    for number in range(MOST_PER_WINDOW + 1):
        bunched.run(5, 5.1, f"a{number}", "rated", epoch=number + 1, claimed=1 + number * 0.3)
    assert_good(limits.rate_limits_hold, bunched)


def test_a_rate_that_is_broken_for_certain_is_found() -> None:
    story = rated([1 + number * 0.1 for number in range(MOST_PER_WINDOW + 1)], late=0.05)
    assert_bad(limits.rate_limits_hold, story, f"{MOST_PER_WINDOW + 1} runs within")


def debounced(*times: float) -> Story:
    story = Story()
    for number, at in enumerate(times):
        story.add(at, f"a{number}", "debounced", args=[1])
    return story


def test_one_run_after_a_burst_is_good() -> None:
    story = debounced(1.0, 1.1, 1.2).run(1.8, 1.9, "a0", "debounced", group=1)
    assert_good(limits.debounces_hold, story)


def test_two_runs_of_a_burst_are_found() -> None:
    story = debounced(1.0, 1.1).run(1.8, 1.9, "a0", "debounced", group=1)
    assert_bad(limits.debounces_hold, story.run(2.0, 2.1, "a1", "debounced", group=1, epoch=2), "two runs of group 1")


def test_a_burst_without_a_run_is_found() -> None:
    story = debounced(1.0, 5.0).run(1.8, 1.9, "a0", "debounced", group=1)
    assert_bad(limits.debounces_hold, story, "no run of group 1 followed a1")


def chain(*steps: tuple[float, int]) -> Story:
    story, numbers = Story(), itertools.count(1)
    for key in ENDLESS:
        for at, step in steps:
            story.run(at, at + 0.1, key, "chain", epoch=next(numbers), step=step)
    return story.note(60, "main", "phase", phase="drain")


def test_chains_that_go_on_are_good() -> None:
    story = chain((1, 0), (20, 1), (40, 2), (41, 2), (59, 3))
    assert_good(chains.chains_do_not_fork, story)
    assert_good(chains.chains_do_not_stop, story)


def test_a_chain_that_begins_again_is_found() -> None:
    found = chain((1, 0), (20, 1), (40, 0), (59, 1)).found_by(chains.chains_do_not_fork)
    assert [violation.key for violation in found] == list(ENDLESS)


def test_a_chain_that_stops_is_found_unless_the_server_was_away() -> None:
    found = chain((1, 0), (20, 1)).found_by(chains.chains_do_not_stop)
    assert len(found) == len(ENDLESS)
    assert "did not run for 40 s" in found[0].text
    assert_good(chains.chains_do_not_stop, chain((1, 0), (20, 1)).fault(25, 40, "server killed"))


def test_a_chain_may_wait_as_long_as_ordinary_tasks_do() -> None:
    steps = ((1, 0), (40, 1), (59, 2))
    assert_good(chains.chains_do_not_stop, chain(*steps).add(25, "a").run(39, 39.1, "a", epoch=99))
    found = chain(*steps).add(35, "a").run(39, 39.1, "a", epoch=99).found_by(chains.chains_do_not_stop)
    assert len(found) == len(ENDLESS)


def test_cron_times_that_have_come_are_good() -> None:
    story = Story().run(3.1, 3.2, "at_every_second", "at_every_second", step=round((WALL + 3) * 1000))
    assert_good(chains.a_cron_time_runs_once, story)


@pytest.mark.parametrize(("ms", "text"), [(3500, "not a whole second"), (4000, "early")])
def test_a_cron_time_that_is_wrong_is_found(ms: int, text: str) -> None:
    story = Story().run(1.1, 1.2, "at_every_second", "at_every_second", step=round(WALL * 1000) + 1000)
    story.run(3.6, 3.7, "at_every_second", "at_every_second", epoch=2, step=round(WALL * 1000) + ms)
    assert_bad(chains.a_cron_time_runs_once, story, text)
