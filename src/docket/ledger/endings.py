"""The ending of a task: the last part of its finished record."""

from __future__ import annotations

import json
from dataclasses import dataclass

from docket.codec.packing import pack, unpack
from docket.errors import DocketError, TaskNotRegistered, Undecodable, WorkerLost
from docket.model.bounds import MOST_LOSSES
from docket.model.states import ExecutionState
from docket.storage.keys import bytes_text, text_bytes

# The content of an ending: nothing, a value, the name of a value in another store, an exception,
# the reference to a payload that is stored apart, or the name of one of docket's own errors. The
# state says whether a payload that is stored apart is a value or an exception.
NOTHING, VALUE, ELSEWHERE, ERROR, APART, OWN_ERROR = range(6)
# The errors that scripts write. Their endings need no payload: the error's text is all they have.
_OWN_ERRORS = {error.__name__: error for error in (WorkerLost, TaskNotRegistered)}
_ERROR_TEXT = 4_000


@dataclass(slots=True)
class Ending:
    """The name of the worker, the text of the error,
    and the result: a value, an exception or nothing."""

    worker: str | None = None
    error: str | None = None
    kind: int = NOTHING
    payload: bytes = b""

    def pack(self) -> bytes:
        return pack((text_bytes(self.worker or ""), cut(self.error), self.kind, self.payload))


def read_ending(tail: bytes) -> Ending:
    try:
        worker, error, kind, payload = unpack(tail)
        if not (isinstance(error, str | None) and isinstance(kind, int) and isinstance(payload, bytes)):
            raise ValueError("its fields have other types")
        return Ending(bytes_text(worker) or None, error, kind, payload)
    except (ValueError, TypeError, AttributeError) as problem:
        raise Undecodable(f"the ending cannot be read: {problem}") from None


def own_ending(error: WorkerLost | TaskNotRegistered, worker: str | None = None) -> Ending:
    """The ending of tasks that fail without a run. A script may write it for several tasks."""
    name = type(error).__name__
    return Ending(worker, f"{name}: {error}", OWN_ERROR, name.encode())


def own_error(ending: Ending) -> DocketError:
    """Raises Undecodable if the name is not one of docket's own errors."""
    name = ending.payload.decode("ascii", "replace")
    if name not in _OWN_ERRORS:
        raise Undecodable("the ending has an error of a newer release")
    return _OWN_ERRORS[name]((ending.error or "").removeprefix(f"{name}: "))


def cut(text: str | None) -> str | None:
    """Shortens long error texts and replaces invalid
    characters, because the texts are stored and published."""
    if text is None:
        return None
    text = text[: _ERROR_TEXT + 1].encode("utf-8", "replace").decode()
    return text if len(text) <= _ERROR_TEXT else text[:_ERROR_TEXT] + "…"


def ending_event(state: ExecutionState, worker_json: str, completed_ms: float, error: str | None = None) -> str:
    tail = f',"error":{json.dumps(cut(error))}' if error is not None else ""
    # A state is a str, and concatenation is faster than reading the enum's value.
    return (
        '{"type":"state","state":"' + state + f'","worker":{worker_json},"completed_at":{round(completed_ms)}{tail}}}'
    )


# Part of the error of a buried task. The script that buries
# it replaces the hashes with the number (lua/reclaim.lua).
LOST_COUNT = "losses so far: "
LOST_TEXT = (
    "the worker was lost while it ran only this task (killed, out of memory, or paused for too long); "
    + LOST_COUNT
    + "{}; the task is kept as a dead letter"
)


def lost_endings() -> list[tuple[bytes, str]]:
    """The ending and the event of a task with too many losses,
    once for each number of digits that the count may have."""
    endings: list[tuple[bytes, str]] = []
    for digits in range(1, len(str(MOST_LOSSES)) + 1):
        ending = own_ending(WorkerLost(LOST_TEXT.format("#" * digits)))
        endings.append((ending.pack(), ending_event(ExecutionState.FAILED, "null", 0, ending.error)))
    return endings
