"""Records, settlements and key names mean the same to Python and to the scripts."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from docket.ledger import history, settlements, statistics
from docket.ledger.deliveries import CLAIM_ROW
from docket.ledger.endings import CANCELLED_EVENT, CANCELLED_TAIL
from docket.ledger.letters import DeathCause, LetterNote
from docket.model.states import KIND_NUMBERS, STATE_NUMBERS, EndingKind
from docket.storage import letters, records
from docket.storage.keys import GROUP, Keys
from docket.storage.layouts import Layout

LUA = files("docket.storage") / "lua"
PARTS = {file.name.removesuffix(".lua"): file.read_text() for file in (LUA / "parts").iterdir()}
DESIGN = Path(__file__).parents[2] / "docs" / "design"
STRUCT = {"B": "B", "H": "H", "I": "I4", "d": "d"}


def constants(part: str) -> dict[str, int | str]:
    """The numbers and texts that a part defines."""
    found: dict[str, int | str] = {}
    for names, values in re.findall(r"^local ([A-Z_, ]+) = (.+)$", PARTS[part], re.MULTILINE):
        for name, value in zip(names.split(", "), values.split(", "), strict=False):
            if value.isdigit():
                found[name] = int(value)
            elif re.fullmatch(r"'[^']*'", value):
                found[name] = re.sub(r"\\(\d+)", lambda m: chr(int(m[1])), value[1:-1])
    return found


def assigned(part: str, source: str) -> list[list[str]]:
    """The names to which a part assigns what this expression
    gives, without the table that they are fields of."""
    pattern = rf"^ +(?:local )?([\w., \n]+?)\s*=\s*{re.escape(source)}"
    return [
        [name.strip().rpartition(".")[2] for name in found.split(",")]
        for found in re.findall(pattern, PARTS[part], re.MULTILINE)
    ]


def lua_format(layout: Layout) -> str:
    texts = layout.texts.split(", ") if layout.texts else []
    return "<" + "".join(STRUCT[letter] for letter in layout.format) + "Hc0" * len(texts)


def test_a_task_record_has_the_same_fields_in_the_same_order() -> None:
    assert constants("records")["TASK_HEADER"] == lua_format(records.TASK_HEADER)
    assert constants("records")["TASK_HEADER_SIZE"] == records.TASK_HEADER.size
    assert records.TASK_HEADER.fields in assigned("records", "struct.unpack(TASK_HEADER, bytes)")


def test_pieces_of_records_are_pieces_of_their_layouts() -> None:
    """Scripts copy bytes from one record to another where the layouts agree."""
    found, task, run, finished = constants("records"), records.TASK_HEADER, records.RUN, records.FINISHED_HEADER
    new_task, place, times, header = (
        str(found[name]).removeprefix("<") for name in ("NEW_TASK", "TASK_PLACE", "TASK_TIMES", "TASK_HEADER")
    )
    assert new_task + place + "H" == header
    assert times == place + "H"
    # The entry has the same two fields in a task record and in a run record.
    assert found["TASK_ENTRY_END"] == task.at("entry_seq") + 4
    assert task.at("entry_seq") - task.at("entry_ms") == run.at("entry_seq") - run.at("entry_ms") == 8
    assert run.fields.index("entry_ms") == 2
    # Epoch and start come first in a run record, and follow the state in a finished record.
    assert run.fields[:2] == ["epoch", "started"]
    assert found["RUN_STARTED_END"] == run.at("entry_ms")
    assert finished.fields[:5] == ["version", "state", "epoch", "started", "completed"]
    assert finished.at("completed") - finished.at("epoch") == found["RUN_STARTED_END"]


def test_a_run_record_has_the_same_fields_in_the_same_order() -> None:
    assert constants("records")["RUN"] == lua_format(records.RUN)
    fields = records.RUN.fields + records.RUN.texts.split(", ")
    assert assigned("records", "struct.unpack(RUN, bytes)") == [fields]


def test_a_finished_record_has_the_same_fields_in_the_same_order() -> None:
    assert constants("records")["FINISHED_HEADER"] == lua_format(records.FINISHED_HEADER)
    assert constants("records")["FINISHED_HEADER_SIZE"] == records.FINISHED_HEADER.size
    packed = re.search(r"struct\.pack\(FINISHED_HEADER, 1, ([^)]+)\)", PARTS["records"])
    assert packed is not None
    assert records.RECORD_VERSION == 1
    assert ["version", *packed[1].split(", ")] == [*records.FINISHED_HEADER.fields[:-1], "#task_bytes"]


def test_a_failed_attempt_has_the_same_fields_in_the_same_order() -> None:
    assert constants("failed_attempts")["FAILED_ATTEMPT"] == lua_format(records.FAILED_ATTEMPT)
    assert constants("failed_attempts")["FAILED_ATTEMPT_SIZE"] == records.FAILED_ATTEMPT.size
    assert "struct.pack(FAILED_ATTEMPT, run.started, now, #row)" in PARTS["failed_attempts"]


def test_a_letter_has_the_same_fields_in_the_same_order() -> None:
    assert constants("letters")["LETTER_HEADER"] == lua_format(letters.LETTER_HEADER)
    assert constants("letters")["LETTER_HEADER_SIZE"] == letters.LETTER_HEADER.size
    assert letters.LETTER_HEADER.fields in assigned("letters", "struct.unpack(LETTER_HEADER, bytes)")
    assert [field for field in letters.LETTER_HEADER.fields if field.endswith("_size")] == [
        f"{name}_size" for name in letters.TEXTS
    ]
    packed = re.search(r"#l\.task\) \.\. ([\w. \n]+?)\.\. l\.rest", PARTS["letters"])
    assert packed is not None
    assert re.findall(r"l\.(\w+)", packed[1]) == list(letters.TEXTS)


def test_a_note_for_a_letter_has_the_same_fields_in_the_same_order() -> None:
    (names,) = assigned("letters", "unpack(letter)")
    note = LetterNote(DeathCause.FAILED, 1, 2, 3, "error", "place", b"arguments", "text", b"traceback", True, b"rest")
    row = note.row()
    assert names == [
        "reason",
        "age",
        "most",
        "most_bytes",
        "flags",
        "error",
        "place",
        "arguments",
        "text",
        "traceback",
        "rest",
    ]
    assert row == (1, 1, 2, 3, 1, b"error", b"place", b"arguments", b"text", b"traceback", b"rest")
    places = [int(constants("letters")[name]) - 1 for name in ("NOTE_AGE", "NOTE_TEXT")]
    assert [names[place] for place in places] == ["age", "text"]
    assert constants("letters")["FAILED_LETTER"] == DeathCause.FAILED
    assert constants("letters")["BURIED_LETTER"] == DeathCause.BURIED
    assert constants("letters")["NOT_RUN_LETTER"] == DeathCause.NOT_RUN
    assert constants("letters")["SEALED_TRACEBACK"] == letters.SEALED_TRACEBACK
    assert constants("records")["REVIVED"] == records.REVIVED


@pytest.mark.parametrize("kind", ["TASK", "FINISHED"])
def test_the_places_of_single_fields_are_those_of_the_layout(kind: str) -> None:
    layout = records.TASK_HEADER if kind == "TASK" else records.FINISHED_HEADER
    places = {name: at for name, at in constants("records").items() if re.fullmatch(rf"{kind}_\w+_AT", name)}
    assert places
    for name, at in places.items():
        # Lua counts from 1.
        assert at == layout.at(name.removeprefix(f"{kind}_").removesuffix("_AT").lower()) + 1


def test_no_script_has_an_offset_or_a_format_of_its_own() -> None:
    lengths = {"<I4", "<H", "<d"}
    for source in [*PARTS.values(), *(file.read_text() for file in LUA.iterdir() if file.name.endswith(".lua"))]:
        assert set(re.findall(r"struct\.(?:un)?pack\('([^']+)'", source)) <= lengths
        assert re.findall(r"string\.byte\(\w+, \d", source) == []


def test_every_script_that_packs_a_record_packs_all_of_its_fields() -> None:
    sizes = {
        "TASK_HEADER": len(records.TASK_HEADER.fields),
        # The header up to the submission; the due time and the entry.
        "NEW_TASK": records.TASK_HEADER.fields.index("due"),
        "TASK_PLACE": 3,
        "RUN": len(records.RUN.fields) + 2 * len(records.RUN.texts.split(", ")),
        # From the flags on: the flags, the length of the
        # worker id, the id, the length of the limits.
        "RUN_END": 4,
        "RUN_START": len(records.RUN.fields) - 1,
        "FINISHED_HEADER": len(records.FINISHED_HEADER.fields),
        "FAILED_ATTEMPT": len(records.FAILED_ATTEMPT.fields),
        "LETTER_HEADER": len(letters.LETTER_HEADER.fields),
    }
    packed = 0
    for source in [*PARTS.values(), *(file.read_text() for file in LUA.iterdir() if file.name.endswith(".lua"))]:
        for layout, values in re.findall(r"\bpack\(([A-Z_]+), ([^()]+)\)", source):
            assert len(values.split(",")) == sizes[layout], values
            packed += 1
    assert packed == 14


def test_records_have_the_same_numbers_for_flags_and_locations() -> None:
    numbers = constants("records")
    names = ["SCHEDULED", "IN_STREAM", "BEGUN", "CANCEL_ASKED", "UNKNOWN_FUNCTION"]
    assert {name: numbers[name] for name in names} == {name: getattr(records, name) for name in names}
    assert constants("payloads")["APART"] == records.STORED_APART
    assert constants("failed_attempts")["RETRIED"] == records.RETRIED
    assert constants("suspects")["SUSPECT_AFTER"] == records.SUSPECT_AFTER


def test_states_have_the_same_numbers() -> None:
    numbers = {name: number for name, number in constants("records").items() if name.endswith("_STATE")}
    assert numbers == {f"{state.name}_STATE": number for state, number in STATE_NUMBERS.items()}


def test_a_cancelled_task_ends_with_the_same_bytes() -> None:
    (part,) = [name for name, text in PARTS.items() if "local CANCELLED_TAIL" in text]
    assert str(constants(part)["CANCELLED_TAIL"]).encode("latin-1") == CANCELLED_TAIL
    assert constants(part)["CANCELLED_EVENT"] == CANCELLED_EVENT


def test_settlements_have_the_same_kinds_and_purposes() -> None:
    numbers = constants("settlements")
    assert numbers == {name: getattr(settlements, name) for name in numbers}
    assert len(numbers) == 9


def test_settlements_have_the_same_fields_in_the_same_order() -> None:
    assert settlements.LetterItem._fields[:-1] == settlements.FinishItem._fields
    items = [
        settlements.LetterItem,
        settlements.RescheduleItem,
        settlements.RequeueItem,
        settlements.BlockedItem,
        settlements.HoldItem,
        settlements.UnknownItem,
    ]
    assert assigned("settlements", "unpack(item)") == [list(item._fields) for item in items]


def test_the_path_of_plain_tasks_reads_a_finish_in_the_same_order() -> None:
    source = (LUA / "settle.lua").read_text()
    read = re.search(r"^  local ([\w, ]+) = unpack\(item\)$", source, re.MULTILINE)
    assert read is not None
    names = read[1].replace("made_progress", "has_progress").split(", ")
    assert names == list(settlements.FinishItem._fields)


def test_a_claim_answers_rows_of_the_same_fields() -> None:
    pattern = r"answer\[n \+ 1\], answer\[n \+ 2\], answer\[n \+ 3\] = ([\w., ]+)$"
    rows = [row for text in PARTS.values() for row in re.findall(pattern, text, re.MULTILINE)]
    assert len(rows) == 3
    for row in rows:
        assert tuple(name.rpartition(".")[2].replace("bytes", "record") for name in row.split(", ")) == CLAIM_ROW


def python_keys() -> set[str]:
    keys = Keys("P")
    return {key.decode().removeprefix("P:") for key in keys.all}


def lua_keys() -> set[str]:
    return set(re.findall(r"^local \w+ = P \.\. '([^']+)'$", PARTS["keys"], re.MULTILINE))


def documented_keys() -> set[str]:
    text = (DESIGN / "key-layout.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `P:")]
    return {re.sub(r":=\w$", ":=", name) for row in rows for name in re.findall(r"`P:([^`]+)`", row)}


# Keys that no script names: their names are arguments, or plain commands use them.
NOT_IN_SCRIPTS = {"rate:=", "rate-waiters:=", "cooldown:=", "debounce:=", "leads:=", "kept:=", "damaged:="}


def test_scripts_and_python_name_the_same_keys() -> None:
    assert lua_keys() == python_keys() - NOT_IN_SCRIPTS


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    assert documented_keys() == python_keys()


def test_the_group_of_the_streams_has_one_name() -> None:
    assert constants("keys")["GROUP"] == GROUP


def test_statistics_mean_the_same() -> None:
    numbers = constants("statistics")
    for kind in ("SUCCEEDED", "CANCELLED", "BURIED", "UNKNOWN_FUNCTION", "LOST"):
        assert numbers[f"{kind}_KIND"] == KIND_NUMBERS[EndingKind[kind]]
    shared = ("KIND_CELL", "RUN_CELL", "NO_TIME", "NO_TIMES", "RUN_SECONDS", "KINDS", "WAITING_TIMES")
    for name in (*shared, "SUCCEEDED_RUNS", "OTHER_RUNS", "MINUTE_MS", "HOUR_MINUTES", "LONGEST_NAME"):
        assert numbers[name] == getattr(statistics, name)
    assert numbers["MOST_COUNTED"] == statistics.MOST_COUNTED
    assert numbers["MOST_UNKNOWN_COUNTED"] == statistics.MOST_UNKNOWN_COUNTED
    assert (numbers["MARK"], numbers["OTHERS"], numbers["FUNCTION_FIELD"]) == ("m", "o", "f")
    offset = records.TASK_HEADER.at("name_length") + 1
    assert numbers["NAME_SIZE_AT"] == offset
    assert numbers["NOT_SUCCEEDED"] == 2 * statistics.KIND_CELL
    assert numbers["NO_RUN_TIME"] == statistics.NO_TIME * statistics.RUN_CELL


def test_the_history_means_the_same() -> None:
    numbers = constants("history")
    assert numbers["ENTRY_VERSION"] == history.ENTRY_VERSION
    assert str(numbers["ENTRY_FIELD"]).encode() == history.ENTRY_FIELD
    kinds = re.search(r"FAILURE_KINDS = \{([^}]+)\}", PARTS["history"])
    assert kinds is not None
    found = {int(number) for number in re.findall(r"\[(\d+)\] = true", kinds[1])}
    assert found == {KIND_NUMBERS[kind] for kind in history.FAILURE_KINDS}
