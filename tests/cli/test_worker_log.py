"""The log of `docket worker`: where it goes and what its lines carry."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from .conftest import Command
from .processes import program, surroundings

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)


def work(url: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A worker that does all there is and ends."""
    return subprocess.run(
        program("worker", "--url", url, "--until-finished", *options),
        env=surroundings(environment),
        capture_output=True,
        encoding="utf-8",
    )


def records(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("format", ["plain", "json", "rich"])
def test_the_log_is_on_standard_output_and_nothing_else_is_anywhere(
    format: str, url: str, docket_command: Command
) -> None:
    docket_command("tasks", "trace", "hello", "--url", url)
    done = work(url, "--logging-format", format)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "hello" in done.stdout
    assert "trace(message: str, ...)" in done.stdout


def test_an_error_that_keeps_a_worker_from_starting_stays_on_standard_error(url: str) -> None:
    done = work(url, "--tasks", "nowhere:tasks", "--logging-format", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no module 'nowhere'" in done.stderr


def test_json_lines_have_the_names_of_the_logging_module(url: str, docket_command: Command) -> None:
    docket_command("tasks", "fail", "no way", "--url", url, "--key", "failing")
    lines = records(work(url, "--logging-format", "json", "--name", "Ada"))
    for line in lines:
        assert {"name", "levelname", "asctime", "message", "exc_info"} <= line.keys()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", line["asctime"])
    failure = next(line for line in lines if line["levelname"] == "ERROR")
    assert failure["name"] == "docket.worker"
    assert "RuntimeError: no way" in failure["exc_info"]
    assert failure["docket.key"] == "failing"
    assert all(line["exc_info"] is None for line in lines if line["levelname"] == "INFO")


def test_the_lines_of_a_run_carry_its_punctuality_and_duration_as_numbers(url: str, docket_command: Command) -> None:
    docket_command("tasks", "sleep", "50ms", "--url", url, "--key", "nap")
    lines = records(work(url, "--logging-format", "json"))
    start = next(line for line in lines if line["message"].startswith("↪"))
    end = next(line for line in lines if line["message"].startswith("↩"))
    assert isinstance(start["punctuality"], float)
    assert "duration" not in start
    assert end["duration"] >= 0.05
    assert end["punctuality"] == start["punctuality"]


def test_the_lines_of_a_retried_task_carry_their_own_attempt_and_the_error(url: str, docket_command: Command) -> None:
    # The task fails twice.
    docket_command("tasks", "fail", "no way", "--url", url, "--key", "failing")
    lines = records(work(url, "--logging-format", "json"))
    runs = [line for line in lines if line["message"][0] in "↪↬↩↫"]
    assert [(line["levelname"], line["message"][0], line["docket.attempt"]) for line in runs] == [
        ("INFO", "↪", 1),
        ("WARNING", "↫", 1),
        ("INFO", "↬", 2),
        ("ERROR", "↩", 2),
    ]
    assert runs[1]["message"].endswith("attempt 1 of 2, again at once")
    assert {line["redelivered"] for line in runs} == {False}
    assert all(isinstance(line["punctuality"], float) for line in runs)
    for end in (runs[1], runs[3]):
        assert end["error_type"] == "RuntimeError"
        assert isinstance(end["duration"], float)


def test_a_log_whose_encoding_lacks_a_character_escapes_it(url: str, docket_command: Command) -> None:
    docket_command("tasks", "trace", "grüße", "--url", url)
    done = work(url, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u21aa" in done.stdout
    assert "gr\\xfc\\xdfe" in done.stdout


@pytest.mark.parametrize("format", ["plain", "rich"])
def test_a_worker_whose_log_nobody_reads_any_more_goes_on(format: str, url: str, docket_command: Command) -> None:
    docket_command("tasks", "sleep", "10ms", "--url", url, "--key", "nap")
    command = program("worker", "--url", url, "--until-finished", "--logging-format", format)
    with subprocess.Popen(
        command, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        assert (worker.stderr.read(), worker.wait(60)) == ("", 0)
    assert docket_command("watch", "nap", "--url", url).exit_code == 0
