"""What the schema declares: pages name the same, and a script that names fields gets them."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from docket.ledger.endings import Ending
from docket.ledger.settlements import CompletedItem
from docket.storage.schema import keys, records, requests, settlements
from docket.storage.schema.layouts import Layout
from docket.storage.schema.lua import definitions, expanded

PAGE = Path(__file__).parents[2] / "docs" / "design" / "key-layout.md"
LAYOUTS = {name: value for name, value in vars(records).items() if isinstance(value, Layout)}


def documented_keys() -> set[str]:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `P:")]
    return {re.sub(r":=\w$", ":=", name) for row in rows for name in re.findall(r"`P:([^`]+)`", row)}


def test_the_page_describes_every_key() -> None:
    assert documented_keys() == {known.name for known in keys.ALL}


@pytest.mark.parametrize("name", LAYOUTS)
def test_scripts_and_python_have_the_same_sizes(any_client: Any, name: str) -> None:
    layout = LAYOUTS[name]
    if not any(known.is_text for known in layout.fields.values()):
        assert any_client.eval(f"return struct.size({definitions()[name][0]})", 0) == layout.size


def test_runs_and_finished_records_share_the_bytes_that_scripts_copy() -> None:
    task, run, finished = records.TASK_HEADER, records.RUN, records.FINISHED_HEADER
    assert run.piece("entry_ms", "entry_seq").lua_format == task.piece("entry_ms", "entry_seq").lua_format
    assert run.piece("epoch", "started").lua_format == finished.piece("epoch", "started").lua_format
    assert list(run.fields)[:3] == ["epoch", "started", "entry_ms"]


def test_a_cancelled_task_ends_as_python_would_end_it() -> None:
    assert Ending().pack() == records.CANCELLED_TAIL


def test_rows_that_begin_alike_have_the_same_fields() -> None:
    assert settlements.LetterItem._fields[:-1] == settlements.FinishItem._fields
    assert settlements.CompletedRun._fields[:3] == CompletedItem._fields
    for item in vars(settlements).values():
        if isinstance(item, type) and item.__name__.endswith("Item"):
            assert vars(item)["_fields"][:3] == ("key", "epoch", "kind")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "pack($RUN_START{epoch = a, started = b(1, 2), entry_ms = 0, entry_seq = 1})",
            "pack(RUN_START, a, b(1, 2), 0, 1)",
        ),
        (
            "pack($RUN{*, worker = w, limits = ''})",
            "pack(RUN, epoch, started, entry_ms, entry_seq, flags, #w, w, 0, '')",
        ),
        ("pack($FAILED_ATTEMPT{r.*, size = n})", "pack(FAILED_ATTEMPT, r.started, r.ended, n)"),
        ("local $TASK_TIMES(due, entry_seq = n) = x", "local due, _, n = x"),
        ("$ClaimedTask(t.*) = unpack(row)", "t.key, t.record, t.epoch = unpack(row)"),
        ("a, b, c = $ClaimedTask{key = k, record = $#Claim, epoch = 1}", "a, b, c = k, 4, 1"),
        ("c[$NewCall.mode] + $#NewCall", "c[3] + 8"),
        ("string.match(id, '^(%d+)$')", "string.match(id, '^(%d+)$')"),
    ],
)
def test_a_line_names_fields(line: str, text: str) -> None:
    assert expanded(line) == text


@pytest.mark.parametrize(
    "line",
    [
        "pack($RUN_START{epoch = 1})",
        "pack($RUN_START{epoch = 1, started = 2, entry_ms = 3, entry_seq = 4, flags = 5})",
        "local $TASK_TIMES(dua) = x",
        "$Nothing(a)",
        "c[$NewCall.moda]",
        "f($Take)",
        "pack($RUN_START{epoch = 1,",
    ],
)
def test_a_field_that_is_missing_or_unknown_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="\\w"):
        expanded(line)


def test_texts_are_quoted_for_lua(any_client: Any) -> None:
    text = definitions()["CANCELLED_TAIL"][0]
    assert any_client.eval(f"return {text}", 0) == records.CANCELLED_TAIL


def test_a_new_record_has_the_defaults_of_its_fields() -> None:
    line = expanded("pack($NEW_TASK{location = SCHEDULED, attempt = 1, submission = s})")
    assert line == "pack(NEW_TASK, 1, SCHEDULED, 0, 1, 0, 1, s)"
    assert struct.calcsize("<BBBIBII") == records.NEW_TASK.size
    assert requests.NewCall(b"k", 0, 0, b"f", b"", 1).key_end is None
