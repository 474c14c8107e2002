"""The rules about processes and about what is left, each with a good and a bad history."""

from __future__ import annotations

import pytest

from chaos.rules import processes, residue

from .story import Story, assert_bad, assert_good


@pytest.mark.parametrize(("code", "fault"), [(-9, "worker killed"), (-9, "producer killed"), (0, "worker stopped")])
def test_a_process_may_end_by_a_fault(code: int, fault: str) -> None:
    story = Story().fault(2, 3, fault, "w0-1").exited(3, "w0-1", code)
    assert_good(processes.no_process_exits_that_was_not_killed, story)


def test_a_process_may_end_by_its_own_task_and_at_the_end() -> None:
    story = Story().note(2, "w0-1", "suicide").exited(2.1, "w0-1", -9)
    story.note(9, "main", "stopped", process="w1-1").exited(9.5, "w1-1", 0)
    assert_good(processes.no_process_exits_that_was_not_killed, story)


@pytest.mark.parametrize("code", [0, 1, -9, -11])
def test_a_process_that_ends_by_itself_is_found(code: int) -> None:
    story = Story().fault(2, 3, "worker paused", "w0-1").exited(4, "w0-1", code)
    assert_bad(processes.no_process_exits_that_was_not_killed, story, f"w0-1 ended with {code}")


def test_a_worker_that_fails_while_it_stops_is_found() -> None:
    story = Story().fault(2, 3, "worker stopped", "w0-1").exited(3, "w0-1", 1)
    assert_bad(processes.no_process_exits_that_was_not_killed, story, "w0-1 ended with 1")


def waiting(*, entry: str | None, free: int, problem: str | None = None) -> Story:
    story = Story("w0-1")
    for tick in range(40):
        story.note(tick, "main", "waiting", stream=entry or f"{tick}-0", front=None)
        story.note(tick, "w0-1", "health", problem=problem, free=free)
    return story


def test_work_may_wait_for_busy_and_for_unhealthy_workers_and_must_move_on() -> None:
    rule = processes.no_worker_is_healthy_and_idle_while_work_waits
    assert_good(rule, waiting(entry="1-0", free=0))
    assert_good(rule, waiting(entry="1-0", free=3, problem="the event loop has been blocked"))
    assert_good(rule, waiting(entry=None, free=3))


def test_work_that_waits_beside_an_idle_worker_is_found() -> None:
    story = waiting(entry="1-0", free=3)
    found = story.found_by(processes.no_worker_is_healthy_and_idle_while_work_waits)
    assert found
    assert "while w0-1 was idle" in found[0].text


def test_metrics_that_fit_are_good() -> None:
    story = Story().run(1, 2, "a").run(3, 4, "b", epoch=2).add(1, "a").add(1, "b").add(1, "c", how="unknown")
    story.note(9, "w0-1", "metrics", totals={"started": 3, "completed": 4, "running": 0})
    story.note(8, "w0-1", "log", level="WARNING", text="reclaiming: 1 worker(s) lost; 0 put back, 1 buried")
    story.note(0, "main", "started", process="p0-1").note(9, "p0-1", "metrics", totals={"scheduled": 2})
    assert_good(processes.the_metrics_balance, story)


@pytest.mark.parametrize(
    ("totals", "text"),
    [
        ({"started": 2, "completed": 1}, "counted 1 completed, expected 2"),
        ({"started": 2, "completed": 2, "running": 1}, "counted 1 running, expected 0"),
        ({"started": 1, "completed": 1}, "counted 1 started, expected 2"),
    ],
)
def test_metrics_of_a_worker_that_do_not_fit_are_found(totals: dict[str, float], text: str) -> None:
    story = Story().run(1, 2, "a").run(3, 4, "b", epoch=2).note(9, "w0-1", "metrics", totals=totals)
    assert_bad(processes.the_metrics_balance, story, text)


def test_metrics_of_a_producer_that_do_not_fit_are_found() -> None:
    story = Story().note(0, "main", "started", process="p0-1").add(1, "a").add(1, "b")
    story.note(9, "p0-1", "metrics", totals={"scheduled": 1})
    assert_bad(processes.the_metrics_balance, story, "counted 1 scheduled, expected 2")


def test_other_warnings_are_not_the_backstops() -> None:
    story = Story().note(5, "w0-1", "log", level="WARNING", text="reclaiming: 1 worker(s) lost")
    assert_good(processes.the_backstop_finds_nothing, story)


def test_a_task_that_only_the_sweep_finds_is_found() -> None:
    story = Story().note(5, "w0-1", "log", level="WARNING", text="sweeping: 1 task(s) were in no queue")
    assert_bad(processes.the_backstop_finds_nothing, story, "sweeping: 1 task(s)")
    assert_good(processes.the_backstop_finds_nothing, story.fault(1, 2, "garbage", ""))


def clean() -> Story:
    story = Story().note(90, "main", "inspected")
    return story.note(89, "main", "stream", name="stream", length=0, pending=0, consumers=[])


def test_an_empty_server_with_its_lasting_keys_is_good() -> None:
    story = clean().note(89, "main", "key", name="epoch", type="string", ttl=-1)
    story.note(89, "main", "key", name="payload:=1", type="string", ttl=5000).record("a")
    assert_good(residue.nothing_is_left_after_the_drain, story)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ({"length": 1, "pending": 0, "consumers": []}, "1 entries of front"),
        ({"length": 0, "pending": 2, "consumers": []}, "2 pending deliveries"),
        ({"length": 0, "pending": 0, "consumers": ["w0"]}, "1 consumers"),
    ],
)
def test_what_is_left_in_a_stream_is_found(what: dict[str, object], text: str) -> None:
    assert_bad(residue.nothing_is_left_after_the_drain, clean().note(89, "main", "stream", name="front", **what), text)


def test_a_key_and_a_record_without_a_time_to_live_are_found() -> None:
    story = clean().note(89, "main", "key", name="payload:=1", type="string", ttl=-1)
    assert_bad(residue.nothing_is_left_after_the_drain, story, "payload:=1 is left")
    assert_bad(residue.nothing_is_left_after_the_drain, clean().record("a", ttl=-1), "the record of a")


def test_a_server_that_was_not_inspected_is_found() -> None:
    assert_bad(residue.nothing_is_left_after_the_drain, Story(), "was not inspected")


def test_a_strike_stays_only_if_nobody_could_restore_it() -> None:
    story = clean().note(89, "main", "strikes", count=1)
    assert_bad(residue.nothing_is_left_after_the_drain, story, "1 strikes are left")
    assert_good(residue.nothing_is_left_after_the_drain, story.request(1, "strike", "done", value=1))
