"""The records of tasks, runs, finished tasks, failed attempts and dead letters
(docs/design/key-layout.md)."""

from __future__ import annotations

from typing import NamedTuple

from docket.model.states import STATE_NUMBERS, ExecutionState

from .layouts import f64, layout, text, u8, u16, u32

RECORD_VERSION = 1

# The function's name and the call follow. All versions share this header.
TASK_HEADER = layout(
    version=u8(RECORD_VERSION, may_lack=True),
    location=u8(),
    flags=u8(0),
    attempt=u32(),
    losses=u8(0),
    generation=u32(1),
    submission=u32(),
    due=f64(),
    entry_ms=f64(),
    entry_seq=u32(),
    name_length=u16(size_of="name"),
)
# The header in pieces: up to the submission; the due time and the entry; these and the length of
# the function's name. A run record has the same bytes for the entry.
NEW_TASK = TASK_HEADER.piece("version", "submission")
TASK_PLACE = TASK_HEADER.piece("due", "entry_seq")
TASK_TIMES = TASK_HEADER.piece("due", "name_length")

# A bit of the byte that counts the losses: the body has begun before.
BEGUN = 128
SUSPECT_AFTER = 2

# Flags of a task. APART: the call is the reference to a payload.
APART = 1
# A run of this submission was admitted and then lost or requeued, so the next run is not a
# newcomer.
WAS_ADMITTED = 2
# Code outside of its runs has written progress.
HAS_PROGRESS = 4
# It was retried after it had failed for good, and DEATHS has its number.
REVIVED = 8
# It was retried.
RETRIED = 16

# Epoch and start come first: a finished record has them in the same sequence.
RUN = layout(epoch=f64(), started=f64(), entry_ms=f64(), entry_seq=u32(), flags=u8(), worker=text(), limits=text())
# Its two halves. Most runs have no limits.
RUN_START = RUN.piece("epoch", "entry_seq")
RUN_END = RUN.piece("flags", "limits_size")

# Flags of a run. ADMITTED: a limit has admitted it.
CANCEL_ASKED = 1
SUSPECT = 2
FROM_FRONT = 4
ADMITTED = 8
# No other body runs in its process.
ALONE = 16

# The task record, the size of the progress (4 bytes), the progress and a tail that only Python
# reads follow.
FINISHED_HEADER = layout(
    version=u8(RECORD_VERSION),
    state=u8(),
    epoch=f64(),
    started=f64(),
    completed=f64(),
    task_size=u32(),
)
COMPLETED_STATE = STATE_NUMBERS[ExecutionState.COMPLETED]
FAILED_STATE = STATE_NUMBERS[ExecutionState.FAILED]
CANCELLED_STATE = STATE_NUMBERS[ExecutionState.CANCELLED]
# Added to the state: the result is a payload that is named after the epoch.
RESULT_APART = 128
# The tail and the event of a task that was cancelled; a test packs the same tail.
CANCELLED_TAIL = b"\x94\xc4\x00\xc0\x00\xc4\x00"
CANCELLED_EVENT = '{"type":"state","state":"cancelled"}'

# The head of a row. The rest of the row follows.
FAILED_ATTEMPT = layout(started=f64(), ended=f64(), size=u32())

LETTER_VERSION = 1
# The texts follow, in the sequence of their sizes, and then bytes that only Python reads.
LETTER_HEADER = layout(
    version=u8(LETTER_VERSION),
    reason=u8(),
    flags=u8(),
    deaths=u32(),
    edits=u32(),
    died=f64(),
    ends=f64(),
    epoch=f64(),
    started=f64(),
    size=f64(),
    kind_size=u16(size_of="kind"),
    key_size=u32(size_of="key"),
    error_size=u16(size_of="error"),
    place_size=u16(size_of="place"),
    arguments_size=u16(size_of="arguments"),
    text_size=u32(size_of="text"),
    traceback_size=u32(size_of="traceback"),
    task_size=u32(size_of="task"),
)
# A flag of a letter: its traceback is encrypted.
SEALED_TRACEBACK = 1
# Why a task became a dead letter. A retried task that was not run (a strike, a limit that drops)
# has not died again.
FAILED_LETTER, BURIED_LETTER, UNDECODABLE_LETTER, REFUSED_LETTER, NOT_RUN_LETTER = range(1, 6)


class LetterFields(NamedTuple):
    """How to keep a task that has failed for good, and what its ending does not say."""

    reason: int
    age: int
    most: int
    most_bytes: int
    flags: int
    error: bytes
    place: bytes
    arguments: bytes
    text: bytes
    traceback: bytes
    rest: bytes
