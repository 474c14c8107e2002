"""The rules about pauses, each with a good and a bad history."""

from __future__ import annotations

from chaos.rules import pauses

from .story import Story, assert_bad, assert_good

GROUP = 7


def pause(story: Story, at: float, until: float | None, *, group: int | None = GROUP, how: str = "done") -> Story:
    """A pause of one piece of work, or of the whole function, and its resume."""
    function = "pausable_as_a_whole" if group is None else "pausable"
    story.request(at, "pause", how, function=function, value=group)
    if until is not None:
        story.request(until, "resume", "done", function=function, value=group)
    return story


def add(story: Story, at: float, *keys: str, function: str = "pausable") -> Story:
    for number, key in enumerate(keys):
        story.add(at + number / 5, key, function, args=[GROUP, number]).state(at + number / 5 + 0.05, key, "queued")
    return story


def test_a_task_starts_before_and_after_its_pause_but_not_during_it() -> None:
    story = pause(Story(), 5, 8)
    story.run(5.05, 5.1, "a", "pausable", group=GROUP).run(8.1, 8.2, "b", "pausable", group=GROUP, epoch=2)
    # Claimed during the pause, and judged after it.
    story.run(8.1, 8.2, "f", "pausable", group=GROUP, epoch=6, claimed=7)
    # Claimed before the pause, of another piece of work, and of another function.
    story.run(6, 6.1, "c", "pausable", group=GROUP, epoch=3, claimed=5.05)
    story.run(6, 6.1, "d", "pausable", group=8, epoch=4).run(6, 6.1, "e", "pausable_as_a_whole", group=GROUP, epoch=5)
    assert_good(pauses.paused_work_does_not_start, story)


def test_a_task_that_starts_during_its_pause_is_a_violation() -> None:
    for group, function in ((GROUP, "pausable"), (None, "pausable_as_a_whole")):
        story = pause(Story(), 5, 8, group=group).run(6, 6.1, "a", function, group=GROUP)
        assert_bad(pauses.paused_work_does_not_start, story, "claimed 0.900 s after its pause")


def test_a_pause_that_nobody_resumes_stays_in_force() -> None:
    story = pause(Story(), 5, None).run(50, 50.1, "a", "pausable", group=GROUP)
    assert_bad(pauses.paused_work_does_not_start, story, "a (pausable) started")


def test_a_pause_whose_answer_was_lost_may_not_be_in_force() -> None:
    story = pause(Story(), 5, 8, how="unknown").run(6, 6.1, "a", "pausable", group=GROUP)
    assert_good(pauses.paused_work_does_not_start, story)


def test_a_resume_of_another_producer_ends_the_pause() -> None:
    story = pause(Story(), 5, 8, group=None).request(6, "resume", None, function="pausable_as_a_whole", value=None)
    story.run(6.5, 6.6, "a", "pausable_as_a_whole", group=GROUP)
    assert_good(pauses.paused_work_does_not_start, story)


def test_a_resume_without_an_answer_may_come_after_the_next_pause() -> None:
    story = Story().request(4, "resume", None, function="pausable_as_a_whole", value=None)
    story = pause(story, 5, 8, group=None).run(6, 6.1, "a", "pausable_as_a_whole", group=GROUP)
    assert_good(pauses.paused_work_does_not_start, story)


def test_held_tasks_go_on_in_the_order_in_which_they_were_added() -> None:
    story = add(pause(Story(), 15, 18), 16, "a", "b", "c")
    story.state(18.01, "a", "queued").state(18.02, "b", "queued").state(18.03, "c", "queued")
    assert_good(pauses.paused_work_goes_on_in_order, story)


def test_a_task_that_overtakes_an_earlier_one_is_a_violation() -> None:
    story = add(pause(Story(), 15, 18), 16, "a", "b", "c")
    story.state(18.01, "a", "queued").state(18.02, "c", "queued").state(18.03, "b", "queued")
    assert_bad(pauses.paused_work_goes_on_in_order, story, "b was let go after c")


def test_the_order_of_tasks_that_a_fault_put_back_is_not_known() -> None:
    story = add(pause(Story(), 15, 18), 16, "a", "b").fault(15.5, 15.6, "worker killed", "w0-1")
    story.state(18.01, "b", "queued").state(18.02, "a", "queued")
    assert_good(pauses.paused_work_goes_on_in_order, story)


def test_tasks_that_were_added_at_the_same_time_have_no_order() -> None:
    story = pause(Story(), 15, 18)
    for key in ("a", "b"):
        story.add(16, key, "pausable", args=[GROUP, 0]).state(16.05, key, "queued")
    story.state(18.01, "b", "queued").state(18.02, "a", "queued")
    assert_good(pauses.paused_work_goes_on_in_order, story)
