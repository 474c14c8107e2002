"""How a task ended, as bytes at the end of its finished record."""

from __future__ import annotations

import json
from dataclasses import dataclass

from docket.codec import encode_error
from docket.codec.packing import pack, unpack
from docket.errors import Undecodable, WorkerLost
from docket.model.losses import MOST_LOSSES
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text, text_bytes

from .settlements import RunEnding

# What the ending carries: nothing, a value, the name of a value kept in another store, an
# exception, the reference to a payload, which is a value or an exception as the state tells.
NOTHING, VALUE, ELSEWHERE, ERROR, APART = range(5)
_ERROR_TEXT = 4_000


@dataclass(slots=True)
class Ending:
    """The worker that ended the task, its error in words,
    and what it left: a value, an exception or nothing."""

    worker: str | None = None
    error: str | None = None
    kind: int = NOTHING
    payload: bytes = b""

    def pack(self) -> bytes:
        return pack((text_bytes(self.worker or ""), cut(self.error), self.kind, self.payload))


def read_ending(tail: bytes) -> Ending:
    try:
        worker, error, kind, payload = unpack(tail)
    except ValueError as problem:
        raise Undecodable(f"the ending cannot be read: {problem}") from None
    return Ending(bytes_text(worker) or None, error, kind, payload)


def cut(text: str | None) -> str | None:
    """Error texts are stored and published: long ones are cut, and none may break an event."""
    if text is None:
        return None
    text = text[: _ERROR_TEXT + 1].encode("utf-8", "replace").decode()
    return text if len(text) <= _ERROR_TEXT else text[:_ERROR_TEXT] + "…"


def ending_event(state: ExecutionState, worker_json: str, completed_ms: float, error: str | None = None) -> str:
    tail = f',"error":{json.dumps(cut(error))}' if error is not None else ""
    # A state is a string, and adding strings is quicker than asking an enum for its value.
    return (
        '{"type":"state","state":"' + state + f'","worker":{worker_json},"completed_at":{round(completed_ms)}{tail}}}'
    )


def run_ending(ending: Ending, state: ExecutionState, worker_json: str, completed_ms: float) -> RunEnding:
    """The same for a run after which the task goes on."""
    event = ending_event(state, worker_json, completed_ms, ending.error)
    return RunEnding(state, ending.pack(), event[:-1] + ',"goes_on":true}')


# As the scripts write them, too (lua/parts/endings.lua).
CANCELLED_TAIL = Ending().pack()
CANCELLED_EVENT = '{"type":"state","state":"cancelled"}'


# In the text of a buried task; the script that buries it puts
# the number in the place of the hashes (lua/reclaim.lua).
LOST_COUNT = "losses so far: "
LOST_TEXT = (
    "the worker was lost while it ran only this task (killed, out of memory, or paused for too long); "
    + LOST_COUNT
    + "{}; the task is kept as a dead letter"
)


def lost_endings() -> list[tuple[bytes, str]]:
    """Tail and event of a task that lost its worker too often,
    with room for a number of one, two and three digits."""
    endings: list[tuple[bytes, str]] = []
    for digits in range(1, len(str(MOST_LOSSES)) + 1):
        error = WorkerLost(LOST_TEXT.format("#" * digits))
        text = f"WorkerLost: {error}"
        tail = Ending(error=text, kind=ERROR, payload=encode_error(error)).pack()
        endings.append((tail, ending_event(ExecutionState.FAILED, "null", 0, text)))
    return endings
