"""Histories, schedules and reports of the history checker."""

from __future__ import annotations

import itertools
import os
import xml.etree.ElementTree
from pathlib import Path
from random import Random

import pytest

from chaos.broken import BUILDS
from chaos.histories import History, read_histories
from chaos.nemesis import FAULTS
from chaos.nemesis.schedule import rounds
from chaos.recovery import recoveries
from chaos.report import details, figures, judge, summary
from chaos.rules import RULES
from chaos.timeline import Timeline
from chaos.work import BY_FUNCTION, FUNCTIONS
from tests.waiting import SECONDS
from tests.warm_interpreter import start_module

from .story import Story

ROOT = Path(__file__).parents[2]


def test_the_events_of_all_processes_come_in_the_order_of_time(tmp_path: Path) -> None:
    first, second = History(tmp_path, "w0-1"), History(tmp_path, "p0-1")
    first.write("start", key="a")
    second.write("answer", how="scheduled")
    first.write("end", how="ok")
    events = read_histories(tmp_path)
    assert [(event.process, event.kind) for event in events] == [("w0-1", "start"), ("p0-1", "answer"), ("w0-1", "end")]
    assert events[0]["key"] == "a"


def test_a_process_that_died_in_the_middle_of_a_write_leaves_whole_events(tmp_path: Path) -> None:
    History(tmp_path, "w0-1").write("start", key="a")
    with (tmp_path / "w0-1.history").open("a") as file:
        file.write('[12.5,1000.0,"en')
    assert [event.kind for event in read_histories(tmp_path)] == ["start"]


def test_the_same_seed_gives_the_same_schedule_in_which_every_fault_comes() -> None:
    length = sum(fault.times for fault in FAULTS)
    first, again, other = (list(itertools.islice(rounds(FAULTS, Random(seed)), length)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert set(first) == set(FAULTS)


def test_every_function_of_the_work_has_a_name_of_its_own() -> None:
    assert len({function.__name__ for function in FUNCTIONS}) == len(FUNCTIONS) == len(BY_FUNCTION)


def test_every_rule_has_a_promise_and_finds_nothing_in_a_quiet_run() -> None:
    story = (
        Story()
        .add(1, "a")
        .run(2, 3, "a")
        .record("a")
        .note(10, "main", "phase", phase="drain")
        .note(11, "main", "inspected")
    )
    for rule in RULES:
        assert rule.__doc__, rule.__name__
    assert judge(story.model()).count == 0


def bad_story() -> Story:
    story = Story().add(1, "a").run(2, 3, "a").fault(4, 5, "server killed").run(6, 7, "a", on="w1-1", epoch=2)
    story.record("a", epoch=2).note(10, "main", "phase", phase="drain").note(11, "main", "inspected")
    return story


def test_a_violation_is_shown_with_the_events_around_it() -> None:
    verdict = judge(bad_story().model())
    assert "✗ every duplicate start is explained: 1" in summary(verdict, 7)
    assert "seed 7" in summary(verdict, 7)
    text = details(verdict)
    assert "a (plain) started on w0-1 and again on w1-1" in text
    assert "server killed" in text
    assert "run=w1-1.2" in text
    assert figures(verdict, 7)["violations"] == {"every_duplicate_start_is_explained": 1}


def test_recovery_is_the_time_until_work_goes_on() -> None:
    [recovery] = recoveries(bad_story().note(0.5, "w1-1", "ready").model())
    assert recovery.what == "first start after: server killed"
    assert recovery.seconds == [1.0]
    story = Story().run(1, None, "a").fault(2, 2, "worker killed", "w0-1").run(4.5, 5, "a", on="w1-1", epoch=2)
    [recovery] = recoveries(story.model())
    assert recovery.seconds == [2.5]


def test_the_time_line_is_a_picture_with_every_fault() -> None:
    verdict = judge(bad_story().model())
    violations = [violation for found in verdict.violations.values() for violation in found]
    picture = Timeline(verdict.model, violations, "seed 7 & more").draw()
    xml.etree.ElementTree.fromstring(picture)
    assert "server killed" in picture
    assert 'class="violation"' in picture


@pytest.mark.parametrize("name", sorted(BUILDS))
def test_the_changes_of_a_broken_build_still_fit_to_docket(name: str, tmp_path: Path) -> None:
    """In a process of its own: the changes stay."""
    log = tmp_path / "output"
    with log.open("wb") as output:
        applied = start_module(
            "tests.chaos.broken_build", [name], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, output=output
        )
        assert applied.wait(SECONDS) == 0, log.read_text()
