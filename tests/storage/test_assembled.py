"""The scripts that the server runs and the records that they write change only on purpose."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
from redis.exceptions import ResponseError

from docket.errors import DocketError
from docket.model.states import ExecutionState
from docket.storage.client.faults import translate
from docket.storage.client.redis_py import run_script
from docket.storage.letters import read_letter
from docket.storage.records import TaskRecord, read_finished, read_run, read_task
from docket.storage.repairs import careful_form
from docket.storage.schema.records import FAILED_ATTEMPT, RETRIED
from docket.storage.scripts import assemble, load, show

from . import assembled, golden

TASK = TaskRecord(3, 3, 2, 4, 1750000000123.0, 1750000000456.0, 7, "send_mail", b"\1\2call", 1, 6, 4000000000, True)


def test_every_script_has_the_digest_that_is_written_down() -> None:
    before, now = assembled.FILE.read_text(), assembled.describe()

    changes = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=0))
    assert before == now, f"Scripts have changed. If that is meant, run `{assembled.COMMAND}`.\n{changes}"


@pytest.mark.parametrize("kind", golden.KINDS)
def test_scripts_pack_the_bytes_that_are_written_down(any_client: Any, kind: str) -> None:
    any_client.flushall()
    assert golden.record(any_client, kind) == golden.written()[kind], f"If that is meant, run `{golden.COMMAND}`."


def test_python_reads_the_records_that_are_written_down() -> None:
    written = golden.written()

    assert read_task(written["task"]) == TASK
    run = read_run(written["run"])
    assert (run.epoch, run.started_ms, run.worker, run.cancel_asked) == (
        1750000000789012,
        1750000000789.0,
        "mail~1a2b",
        True,
    )
    ended = read_finished(written["finished"])
    assert (ended.state, ended.epoch, ended.task) == (ExecutionState.FAILED, 1750000000789012, TASK)
    assert (ended.completed_ms, ended.progress, ended.tail) == (1750000001000.0, b"progress", b"tail")
    letter = read_letter(written["letter"])
    assert (letter.reason, letter.deaths, letter.edits, letter.size, letter.task) == (1, 2, 1, 321, TASK)
    assert (letter.key, letter.error, letter.place) == ("order-7", "ValueError", "mail.py:7")
    assert (letter.arguments, letter.text, letter.traceback) == (b"\ncustomer=ab\n", "no address", b"sealed")
    assert (letter.rest, letter.is_damaged) == (b"\x80", False)
    row = written["failed attempt"]
    assert FAILED_ATTEMPT.struct.unpack_from(row) == (1750000000789.0, 1750000001000.0, 3)
    assert RETRIED == 16


def test_every_line_of_a_script_names_the_line_that_it_comes_from() -> None:
    for name in assembled.names():
        for script in (load(name), careful_form(load(name))):
            assert script.source == "".join(f"{line.text}\n" for line in script.lines)
    shown = show("resign").splitlines()
    assert shown[0].split(maxsplit=2)[:2] == ["1", "resign.lua:1"]
    assert any(line.split(maxsplit=2)[1].startswith("parts/fleet.lua:") for line in shown)


def test_an_error_of_a_script_names_the_file_and_the_line(any_client: Any) -> None:
    failing = assemble("failing", "-- Fails.\n-- uses: records\n\nlocal task = unpack_task(nil)\nreturn task\n")
    with pytest.raises(ResponseError) as raised:
        run_script(any_client, failing, [b"P:"], [b"C:"])

    error = translate(raised.value, "redis://here")
    assert isinstance(error, DocketError)
    place = next(line.place for line in failing.lines if "#bytes < TASK_HEADER_SIZE" in line.text)
    assert place.startswith("parts/records.lua:")
    assert str(error).endswith(f" (failing: {place})")


def test_an_error_that_names_the_digest_of_a_script_is_enough() -> None:
    script = load("resign")
    text = f"ERR Error running script (call to f_{script.sha}): @user_script:2: user_script:2: attempt to index a nil value"
    assert str(translate(ResponseError(text), "here")) == f"here: {text} (resign: {script.lines[1].place})"


def test_an_error_of_a_script_that_this_process_has_not_used_stays_as_it_is() -> None:
    text = "ERR user_script:3: x script: 4c9943745933dc18d487e96bcdc3f1f44991f058, on @user_script:3."
    assert str(translate(ResponseError(text), "redis://here")) == f"redis://here: {text}"
