"""The harness at work, with systems that need nothing installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.adapters.marks import Marks
from bench.environments import Environment, InstallFailed, NotInstalled, prepare
from bench.measures import MEASURES
from bench.results import Results
from bench.running import run
from bench.sessions import Session, sessions
from bench.sizes import FULL, QUICK, TINY
from bench.systems import SYSTEMS, System

HERE = Environment(Path(sys.executable), {})
SMALL = replace(
    TINY,
    drain_tasks=100,
    one_by_one=5,
    sleepers=20,
    latencies=2,
    scheduled=2,
    idle_seconds=0.2,
    backlogs=(0,),
    processes=(2,),
)


def system(name: str) -> System:
    return next(system for system in SYSTEMS if system.name == name)


def measure(
    name: str, environment: Environment | InstallFailed, folder: Path, only: Sequence[Session] = sessions(SMALL)
) -> Results:
    return run(
        [system(name)], {name: environment}, SMALL, list(only), folder, report=lambda _: None, keep=lambda _: None
    )


@pytest.mark.parametrize("session", sessions(SMALL), ids=lambda session: session.name)
def test_docket_gives_a_figure_for_every_measure(session: Session, tmp_path: Path):
    results = measure("docket", HERE, tmp_path, [session])
    assert not results.failures
    assert not results.gaps
    assert set(results.samples) == set(session.measures)
    assert all(results.median(key, "docket") is not None for key in session.measures)


def test_the_bare_consumer_says_what_it_cannot_do(tmp_path: Path):
    responding = [session for session in sessions(SMALL) if session.name == "responding"]
    results = measure("bare", HERE, tmp_path, responding)
    assert not results.failures
    assert results.median("latency_p50", "bare")
    assert results.gaps["result_p50"] == {"bare": "keeps no results"}
    assert results.gaps["late_p50"] == {"bare": "cannot schedule"}


def test_a_system_that_could_not_be_installed_fails_every_measure_with_the_reason(tmp_path: Path):
    results = measure("arq", InstallFailed("not installed: no network"), tmp_path)
    assert not results.samples
    assert {reason for failed in results.failures.values() for reason in failed.values()} == {
        "not installed: no network"
    }


def test_a_system_in_another_language_is_left_out_where_its_program_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = prepare([system("bullmq"), system("sidekiq")], tmp_path / "kept", renew=False, report=lambda _: None)
    assert {name: str(reason) for name, reason in found.items()} == {
        "bullmq": "node is not installed on this machine",
        "sidekiq": "sidekiq is not installed on this machine",
    }
    missing = found["bullmq"]
    assert isinstance(missing, NotInstalled)
    draining = [session for session in sessions(SMALL) if session.name == "draining at 10"]
    results = measure("bullmq", missing, tmp_path, draining)
    assert not results.failures
    assert results.gaps["drain_10"] == {"bullmq": "node is not installed on this machine"}


def test_a_system_whose_process_dies_fails_with_its_last_words(tmp_path: Path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no module named arq' >&2\nexit 1\n")
    broken.chmod(0o755)
    results = measure("arq", Environment(broken, {}), tmp_path)
    assert not results.samples
    assert results.failures["drain_10"]["arq"] == "the producer ended: no module named arq"


def test_lost_and_repeated_runs_show(tmp_path: Path):
    marks = Marks.create(tmp_path / "marks", 10)
    for number in (1, 2, 2, 5):
        Marks(tmp_path / "marks").mark(number)
    assert (marks.done(0, 10), marks.repeated(0, 10)) == (3, 1)
    began, ended = marks.span(0, 10)
    assert 0 < began <= ended


def test_every_form_measures_only_what_the_tables_know():
    for sizes in (FULL, QUICK, TINY):
        for session in sessions(sizes):
            assert set(session.measures) <= set(MEASURES)
