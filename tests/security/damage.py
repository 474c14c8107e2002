"""Every place in which a process reads bytes that somebody else may have written, and damaged bytes
for each of them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from docket.codec import Payloads
from docket.codec.error_texts import append_traceback
from docket.codec.packing import pack, pack_for_script
from docket.codec.payloads import pack_headers, shown_arguments
from docket.codec.proofs import proof, proven_body
from docket.execution.events import announces_end, read_ending_message, read_event
from docket.execution.progress import progress_event, read_progress
from docket.ledger import read_failed_attempts
from docket.ledger.endings import own_error, read_ending
from docket.ledger.failed_attempts import failed_attempt
from docket.model.states import ExecutionState
from docket.model.times import from_ms
from docket.storage import records
from docket.storage.schema import records as schema
from docket.strikelist.instructions import Strike
from docket.strikelist.stored import RuleValues, StoredRules
from docket.worker.claiming.direct_delivery import read_delivery

from .forgeries import finished_record, task_record

SECRET = b"5" * 128
# Nothing here is a pickle that runs code, whatever is damaged in it.
CALL = pack(["not", "a", "pickle"])
TASK = task_record("work", CALL)
RUN = schema.RUN.struct.pack(7.0, 1.0, 1.0, 1, 0) + b"\x08\x00worker~1" + b"\x00\x00"
FINISHED = finished_record(TASK, CALL)
EVENT = b'{"type":"state","state":"running","worker":"w","started_at":1700000000000,"error":null}'
FAILED = 2 * (schema.FAILED_ATTEMPT.struct.pack(1.0, 2.0, len(ROW := failed_attempt(1, "w", "E: x"))) + ROW)
DELIVERY = pack_for_script((b"k", TASK, 7, 1.0, 2.0))
PROGRESS = b'{"type":"progress","current":1,"total":100,"message":"half","updated_at":1700000000000}'


def _read_task(data: bytes) -> None:
    task = records.read_task(data)
    assert (task.state, task.redelivered, from_ms(task.due_ms)) is not None
    assert task.call_size >= 0
    records.read_due(data)
    records.is_suspect(data)
    records.is_stored_apart(data)


def _read_finished(data: bytes) -> None:
    record = records.read_finished(data)
    assert record.state.finished
    assert from_ms(record.completed_ms) is not None
    ending = read_ending(record.tail)
    own_error(ending)


def _read_run(data: bytes) -> None:
    run = records.read_run(data)
    assert from_ms(run.started_ms) is not None


def _read_ending_message(data: bytes) -> None:
    """With a valid proof: somebody who can write to the server can compute one."""
    read_ending_message(SECRET, "k", data)
    read_ending_message(SECRET, "k", b"E" + proof(SECRET, b"ending", b"k", data) + data)


def _read_event(data: bytes) -> None:
    event = read_event(data)
    announces_end(data)
    if event is not None:
        progress_event("k", event)
    progress_event("k", read_progress(data))


def _read_strike(data: bytes) -> None:
    strike = StoredRules(Strike, RuleValues(), Payloads()).decode(data)
    assert strike.call_repr()


def _read_strike_value(data: bytes) -> None:
    RuleValues().decode(b"\x01\x03\x00" + data)


def _read_headers(data: bytes) -> None:
    shown = shown_arguments(data)
    assert shown is None or all(isinstance(text, str) for text in (*shown, *shown.values()))


def _read_failed_attempts(data: bytes) -> None:
    for attempt in read_failed_attempts(data):
        assert isinstance(attempt.error, str)


def _read_traceback(data: bytes) -> None:
    for payloads in (Payloads(), Payloads("json")):
        assert isinstance(payloads.open_traceback("k", 7, ExecutionState.FAILED, data), str | None)


def _read_delivery(data: bytes) -> None:
    delivery, sent_ms = read_delivery(data)
    assert isinstance(delivery.key, str)
    assert isinstance(delivery.record, bytes)
    assert delivery.epoch > 0
    assert from_ms(delivery.claimed_ms) <= from_ms(delivery.claimed_ms + abs(sent_ms))


def _read_call(data: bytes) -> None:
    Payloads().open_call("k", "work", None, data)


def _read_result(data: bytes) -> None:
    Payloads().open_result("k", 7, ExecutionState.COMPLETED, None, data)


def _read_proven(data: bytes) -> None:
    assert proven_body(SECRET, b"C", b"cancel", b"w", data) is None


@dataclass(frozen=True)
class Place:
    """Where bytes are read, and bytes that are sound there."""

    name: str
    read: Callable[[bytes], Any]
    sound: bytes


PLACES = [
    Place("task record", _read_task, TASK),
    Place("run record", _read_run, RUN),
    Place("finished record", _read_finished, FINISHED),
    Place("ending", lambda data: own_error(read_ending(data)), FINISHED[-40:]),
    Place("ending message", _read_ending_message, b"e" + FINISHED),
    Place("event", _read_event, EVENT),
    Place("progress", _read_event, PROGRESS),
    Place(
        "strike", _read_strike, StoredRules(Strike, RuleValues(), Payloads()).encode(Strike("work", "x", value=5))[1]
    ),
    Place("value of a strike", _read_strike_value, RuleValues().encode({"a": (1, [2.5])})[3:]),
    Place("call", _read_call, TASK[-len(CALL) - 5 :]),
    Place("result", _read_result, b"\x01\x01\x00" + CALL),
    Place("headers of a call", _read_headers, pack_headers({"traceparent": "00-1"}, {"customer": "7"}) + CALL),
    Place("failed attempts", _read_failed_attempts, FAILED),
    Place("traceback", _read_traceback, b"\x01\x01\x00" + append_traceback(CALL + b".", "Traceback")),
    Place("direct delivery", _read_delivery, DELIVERY),
    Place("proof", _read_proven, b"C" + b"0" * 40 + b"7 k"),
]


def damaged(sound: bytes, chance: random.Random) -> bytes:
    data = bytearray(sound)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = chance.randbytes(chance.randrange(1, 12))
            case 2:
                del data[at : at + chance.randrange(1, 9)]
            case 3:
                data[:] = chance.randbytes(chance.randrange(120))
            case _:
                if at < len(data):
                    data[at] = chance.randrange(256)
    return bytes(data)
