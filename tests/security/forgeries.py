"""Records and messages as docket's scripts make
them, made by an attacker who knows every format."""

from docket.codec.packing import pack_for_script
from docket.ledger.endings import VALUE, Ending
from docket.storage import records
from docket.storage.keys import text_bytes

ENVELOPE = b"\x01\x01\x00"


def task_record(function: str, pickled: bytes, *, generation: int = 1, submission: int = 1) -> bytes:
    """A task that is ready, whose call is this pickle."""
    name = text_bytes(function)
    header = records._TASK.pack(1, 1, 0, 1, 0, generation, submission, 0.0, 1.0, 1, len(name))
    return header + name + b"\0\0" + ENVELOPE + pickled


def finished_record(task: bytes, pickled: bytes) -> bytes:
    """A task that has completed, whose result is this pickle."""
    ending = Ending("worker", None, VALUE, ENVELOPE + pickled).pack()
    head = records._FINISHED.pack(1, 3, 7.0, 1.0, 2.0, len(task))
    return head + task + records._LENGTH.pack(0) + ending


def delivery(key: str, task: bytes, epoch: int, now_ms: float) -> bytes:
    return pack_for_script((text_bytes(key), task, epoch, now_ms, now_ms))
