"""The rules about tasks and their ends, each with a good and a bad history."""

from __future__ import annotations

from chaos.rules import endings, letters, states, withdrawals

from .story import WALL, Story, assert_bad, assert_good


def test_an_accepted_task_that_has_a_record_is_not_lost() -> None:
    story = Story().add(1, "a").add(1, "b", how=None).add(1, "c", how="refused").record("a")
    assert_good(endings.nothing_acknowledged_is_lost, story)


def test_an_accepted_task_without_a_record_is_lost() -> None:
    assert_bad(endings.nothing_acknowledged_is_lost, Story().add(1, "a"), "a was accepted and has no record")


def test_a_task_that_never_ends_is_lost() -> None:
    story = Story().add(1, "a").note(80, "main", "unfinished", key="a", state="running", function="plain")
    assert_bad(endings.nothing_acknowledged_is_lost, story, "a is still running")


def test_a_replacement_whose_answer_was_lost_may_have_counted() -> None:
    for token in ("first", "second"):
        story = Story().add(1, "a", token="first").add(2, "a", token="second", kind="replace", how="unknown")
        assert_good(endings.nothing_acknowledged_is_lost, story.record("a", token=token))


def test_a_replacement_that_was_accepted_and_forgotten_is_lost() -> None:
    story = Story().add(1, "a", token="first").add(2, "a", token="second", kind="replace")
    assert_bad(endings.nothing_acknowledged_is_lost, story.record("a", token="first"), "not of second")


def test_tasks_end_as_their_work_says() -> None:
    story = Story().add(1, "a").record("a").add(1, "b", "retried", args=[3]).record("b", "failed", "retried")
    story.add(1, "c").request(2, "cancel", "done", key="c").record("c", "cancelled")
    assert_good(endings.every_task_ends_as_it_should, story)


def test_a_task_that_nobody_cancelled_does_not_end_as_cancelled() -> None:
    story = Story().add(1, "a").record("a", "cancelled")
    assert_bad(endings.every_task_ends_as_it_should, story, "ended as cancelled")


def test_a_lethal_task_may_be_buried() -> None:
    story = Story().add(1, "a", "kill_process").record("a", "failed", "kill_process")
    assert_good(endings.an_innocent_task_is_never_buried, story.note(91, "main", "buried", key="a"))


def test_an_innocent_task_may_not_be_buried() -> None:
    story = Story().add(1, "a").record("a", "failed").note(91, "main", "buried", key="a")
    assert_bad(endings.an_innocent_task_is_never_buried, story, "a (plain) is buried")


def unlucky(neighbour_until: float) -> Story:
    """A task that is lost three times, the last time beside a neighbour that ends then."""
    story = Story("w0-1", "w1-1", "w2-1").add(0, "a").record("a", "failed", buried=True)
    for number in range(3):
        worker = f"w{number}-1"
        story.run(number * 10 + 1, None, "a", on=worker, epoch=number + 1)
        story.fault(number * 10 + 5, number * 10 + 5, "worker killed", worker).exited(number * 10 + 5, worker, -9)
    story.run(22, neighbour_until, "b", on="w2-1", epoch=9)
    return story.note(91, "main", "buried", key="a")


def test_a_task_that_was_alone_when_its_worker_was_lost_for_the_third_time_may_be_buried() -> None:
    assert_good(endings.an_innocent_task_is_never_buried, unlucky(neighbour_until=24))
    assert_good(endings.every_task_ends_as_it_should, unlucky(neighbour_until=24))


def claimed_only(neighbour_until: float) -> Story:
    """A task that is lost three times while its child starts, the last time beside a neighbour."""
    story = Story("w0-1", "w1-1", "w2-1").add(0, "a").record("a", "failed", buried=True)
    for number in range(3):
        worker = f"w{number}-1"
        story.note(number * 10 + 1, "main", "state", key="a", state="running")
        story.note(number * 10 + 1.1, worker, "log", level="WARNING", text="task 'a' was lost with its worker before")
        story.fault(number * 10 + 5, number * 10 + 5, "worker killed", worker).exited(number * 10 + 5, worker, -9)
    story.run(22, neighbour_until, "b", on="w2-1", epoch=9)
    return story.note(91, "main", "buried", key="a")


def test_a_task_whose_body_never_began_may_be_buried_if_it_was_alone() -> None:
    assert_good(endings.an_innocent_task_is_never_buried, claimed_only(neighbour_until=24))
    assert_bad(endings.an_innocent_task_is_never_buried, claimed_only(neighbour_until=26), "a (plain) is buried")


def test_a_task_that_was_not_alone_may_not_be_buried() -> None:
    assert_bad(endings.an_innocent_task_is_never_buried, unlucky(neighbour_until=26), "a (plain) is buried")


def test_a_completed_task_has_run() -> None:
    story = Story().add(1, "a", "valued").run(2, 3, "a", "valued", epoch=7)
    story.record("a", function="valued", epoch=7, result="w0-1.7")
    assert_good(endings.nothing_is_recorded_as_done_that_did_not_run, story)


def test_a_task_that_is_completed_without_a_run_is_found() -> None:
    story = Story().add(1, "a").record("a", epoch=7)
    assert_bad(endings.nothing_is_recorded_as_done_that_did_not_run, story, "no such run began")


def test_a_task_that_is_completed_by_a_run_that_died_is_found() -> None:
    story = Story().add(1, "a").run(2, None, "a", epoch=7).record("a", epoch=7)
    assert_bad(endings.nothing_is_recorded_as_done_that_did_not_run, story, "that run ended: None")


def test_the_result_of_another_run_is_found() -> None:
    story = Story().add(1, "a", "valued").run(2, 3, "a", "valued", epoch=7)
    story.record("a", function="valued", epoch=7, result="w1-1.3")
    assert_bad(endings.nothing_is_recorded_as_done_that_did_not_run, story, "the result of w1-1.3")


def test_the_last_run_of_a_task_may_end_it() -> None:
    story = Story().run(2, None, "a", epoch=1).run(5, 6, "a", on="w1-1", epoch=2).record("a", epoch=2)
    assert_good(endings.no_stale_write_is_accepted, story)


def test_an_earlier_run_may_not_end_a_task() -> None:
    story = Story().run(2, 8, "a", epoch=1).run(5, 9, "a", on="w1-1", epoch=2).record("a", epoch=1)
    assert_bad(endings.no_stale_write_is_accepted, story, "run 1 was accepted after run 2")


def test_states_may_go_back_after_a_loss_and_repeat_after_a_gap() -> None:
    story = Story().add(0, "a").state(1, "a", "running").state(2, "a", "queued").state(3, "a", "running")
    story.note(4, "main", "gap").state(5, "a", "running").state(6, "a", "completed")
    assert_good(states.states_are_monotone, story)


def test_a_task_that_is_given_out_twice_is_found() -> None:
    story = Story().add(0, "a").state(1, "a", "running").state(2, "a", "running")
    assert_bad(states.states_are_monotone, story, "given out twice")


def test_a_task_that_goes_on_after_its_end_is_found() -> None:
    story = Story().add(0, "a").state(1, "a", "completed").state(2, "a", "queued")
    assert_bad(states.states_are_monotone, story, "queued after it was completed")


def test_a_chain_goes_on_after_the_end_of_a_run() -> None:
    story = Story().state(1, "chain-0", "completed", goes_on=True).state(2, "chain-0", "queued")
    assert_good(states.states_are_monotone, story)


def test_a_run_that_was_claimed_before_the_cancel_may_begin_and_end() -> None:
    story = Story().request(2, "cancel", "done", key="a")
    assert_good(withdrawals.cancelled_work_does_not_run, story.run(2.5, 3, "a", claimed=2.0, how="cancelled"))


def test_a_task_that_starts_after_its_cancel_is_found() -> None:
    story = Story().request(2, "cancel", "done", key="a").run(4, 5, "a")
    assert_bad(withdrawals.cancelled_work_does_not_run, story, "after its cancel")


def test_a_run_that_ignores_its_cancel_is_found_unless_a_fault_held_it_up() -> None:
    story = Story().run(1, 30, "a").request(2, "cancel", "done", key="a")
    assert_bad(withdrawals.cancelled_work_does_not_run, story, "still ran long after")
    story.fault(1.5, 26, "network gone", "w0")
    assert_good(withdrawals.cancelled_work_does_not_run, story)


def test_the_replacement_runs() -> None:
    story = Story().add(1, "a", token="first").add(2, "a", token="second", kind="replace")
    assert_good(withdrawals.replaced_work_does_not_run, story.run(3, 4, "a", token="second"))


def test_a_replaced_task_that_runs_is_found() -> None:
    story = Story().add(1, "a", token="first").add(2, "a", token="second", kind="replace")
    assert_bad(withdrawals.replaced_work_does_not_run, story.run(3, 4, "a", token="first"), "after it was replaced")


def test_a_struck_task_may_run_before_and_after_its_strike() -> None:
    story = Story().request(2, "strike", "done", value=7).request(9, "restore", "done", value=7)
    story.run(2.5, 3, "a", "strikable", number=7).run(10, 11, "b", "strikable", number=7, epoch=2)
    assert_good(withdrawals.struck_work_does_not_run, story.run(5, 6, "c", "strikable", number=8, epoch=3))


def test_a_struck_task_that_runs_is_found_on_a_worker_that_could_know() -> None:
    story = Story().request(2, "strike", "done", value=7).run(6, 7, "a", "strikable", number=7)
    assert_bad(withdrawals.struck_work_does_not_run, story, "after its strike")
    assert_good(withdrawals.struck_work_does_not_run, story.fault(3, 5, "messages late", "w0"))


def test_the_clock_of_the_stories_is_the_clock_of_the_records() -> None:
    [run] = Story().run(2, 3, "a", claimed=1.5).model().runs
    assert (run.claimed_wall, run.claimed_at) == (WALL + 1.5, 1.5)


def failed_for_good() -> Story:
    return Story().add(1, "a", "mended").run(2, 3, "a", "mended", how="failed", generation=1)


def test_a_task_that_failed_for_good_has_one_letter() -> None:
    story = failed_for_good().record("a", "failed", "mended").note(91, "main", "letter", key="a", epoch=1)
    assert_good(letters.every_final_failure_has_one_letter, story)
    assert_bad(
        letters.every_final_failure_has_one_letter,
        story.note(91, "main", "letter", key="a", epoch=1),
        "a has 2 letters of run 1",
    )


def test_a_failure_without_a_letter_is_found() -> None:
    story = failed_for_good().record("a", "failed", "mended").note(91, "main", "letter", key="a", epoch=7)
    assert_bad(letters.every_final_failure_has_one_letter, story, "a failed (None) and has no letter of run 1")


def test_a_letter_that_was_retried_runs() -> None:
    story = failed_for_good().request(4, "retry", key="a")
    assert_bad(letters.every_retried_letter_runs, story, "a was retried and did not run")
    assert_good(letters.every_retried_letter_runs, story.run(5, 6, "a", "mended", epoch=2, generation=2, step=2))
