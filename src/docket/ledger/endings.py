"""How a task ended, as bytes at the end of its finished record."""

from __future__ import annotations

import json
from dataclasses import dataclass

from docket.codec.packing import pack, unpack
from docket.model.errors import Undecodable, WorkerLost
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text, text_bytes

# What the ending carries: nothing, a value, the name of a value kept in another store, an exception, the reference to a payload,
# which is a value or an exception as the state tells.
NOTHING, VALUE, ELSEWHERE, ERROR, APART = range(5)
_ERROR_TEXT = 4_000


@dataclass(slots=True)
class Ending:
    """The worker that ended the task, its error in words, and what it left: a value, an exception or nothing."""

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
    return '{"type":"state","state":"' + state + f'","worker":{worker_json},"completed_at":{completed_ms:.0f}{tail}}}'


CANCELLED_TAIL = Ending().pack()
CANCELLED_EVENT = '{"type":"state","state":"cancelled"}'


def lost_ending(seal: bytes) -> tuple[bytes, str]:
    """Tail and event of a task that lost its worker too often; `seal` is the stored WorkerLost."""
    return Ending(error=LOST_TEXT, kind=ERROR, payload=seal).pack(), ending_event(
        ExecutionState.FAILED, "null", 0, LOST_TEXT
    )


LOST_ERROR = WorkerLost(
    "the worker was lost three times while it ran this task (killed, out of memory, or paused for too long); "
    "the task is kept as a dead letter"
)
LOST_TEXT = f"WorkerLost: {LOST_ERROR}"
