"""Results and tracebacks of finished tasks, as far as they can be shown without decoding them."""

from __future__ import annotations

import json
import pickletools
from dataclasses import dataclass
from typing import Any

from docket.codec.codecs import CODEC_IDS
from docket.codec.envelopes import ENCRYPTED, HEADER_SIZE
from docket.errors import DocketError, ResultExpired, Undecodable
from docket.execution.context import DocketContext
from docket.execution.stored_results import StoredEnding, fetch_ending
from docket.ledger.endings import ERROR, VALUE
from docket.model.states import ExecutionState
from docket.storage.letters import LetterRecord
from docket.storage.records import FinishedRecord
from docket.storage.schema.records import SEALED_TRACEBACK

# Longer JSON is not shown, only its size.
MOST_SHOWN = 64 * 1024
_CODEC_NAMES = {id: name for name, id in CODEC_IDS.items()}
_OPCODES = {
    "NONE": "None",
    "NEWTRUE": "bool",
    "NEWFALSE": "bool",
    "EMPTY_DICT": "dict",
    "EMPTY_LIST": "list",
    "EMPTY_TUPLE": "tuple",
    "EMPTY_SET": "set",
    "FROZENSET": "frozenset",
    "BINFLOAT": "float",
    "MARK": "tuple",
}
_PREFIXES = (
    ("BININT", "int"),
    ("LONG", "int"),
    ("SHORT_BINUNICODE", "str"),
    ("BINUNICODE", "str"),
    ("SHORT_BINBYTES", "bytes"),
    ("BINBYTES", "bytes"),
    ("BYTEARRAY", "bytearray"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultView:
    """The result of a completed task.

    `type` is its type as far as the stored bytes show it. `value` is
    there only with the JSON codec, if the text is not longer than 64
    kB: `has_value` says so. `problem` says why it cannot be shown.
    """

    size: int
    codec: str | None
    type: str | None
    has_value: bool = False
    value: Any = None
    problem: str | None = None


async def read_result(docket: DocketContext, key: str, record: FinishedRecord) -> ResultView | None:
    """The result of a completed task; None if it has none."""
    if record.state is not ExecutionState.COMPLETED:
        return None
    try:
        stored = await fetch_ending(docket, key, record)
    except ResultExpired as problem:
        return ResultView(size=0, codec=None, type=None, problem=str(problem))
    except DocketError as problem:
        return ResultView(size=0, codec=None, type=None, problem=str(problem))
    return _view(docket, key, record, stored) if stored.kind == VALUE else None


def _view(docket: DocketContext, key: str, record: FinishedRecord, stored: StoredEnding) -> ResultView:
    data = stored.payload
    codec = _CODEC_NAMES.get(data[1]) if len(data) >= HEADER_SIZE else None
    size = max(len(data) - HEADER_SIZE, 0)
    if len(data) >= HEADER_SIZE and data[2] == ENCRYPTED and not docket.payloads.encrypts:
        return ResultView(size=size, codec=codec, type=None, problem="the result is encrypted")
    try:
        body = docket.payloads.result_body(key, record.epoch, record.state, data, is_error=False)
    except (Undecodable, DocketError) as problem:
        return ResultView(size=size, codec=codec, type=None, problem=str(problem))
    if codec == "json":
        return _json_view(body)
    return ResultView(size=len(body), codec=codec, type=pickled_type(body) if codec == "pickle" else None)


def _json_view(body: bytes) -> ResultView:
    if len(body) > MOST_SHOWN:
        return ResultView(size=len(body), codec="json", type=None, problem="the result is too long to be shown")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ResultView(size=len(body), codec="json", type=None, problem="the result is not JSON")
    name = "None" if value is None else type(value).__name__
    return ResultView(size=len(body), codec="json", type=name, has_value=True, value=value)


def pickled_type(body: bytes) -> str | None:
    """The type of a pickled value, as far as its first opcodes show it. They are read, not
    executed."""
    names: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(body[:4096]):
            name = opcode.name
            if name in ("PROTO", "FRAME", "MEMOIZE", "BINPUT"):
                continue
            if name == "STACK_GLOBAL":
                return ".".join(names[-2:])
            if name == "GLOBAL":
                return str(argument).replace(" ", ".")
            if name in ("SHORT_BINUNICODE", "BINUNICODE") and len(names) < 2:
                names.append(str(argument))
                continue
            if names:
                return "str"
            if name in _OPCODES:
                return _OPCODES[name]
            return next((type for prefix, type in _PREFIXES if name.startswith(prefix)), None)
    except Exception:
        # Any bytes may be here.
        return "str" if names else None
    return "str" if names else None


async def traceback_of(docket: DocketContext, key: str, record: FinishedRecord) -> str | None:
    """The traceback in a finished record. None if there is none, or if this process does not have
    the key to open it."""
    try:
        stored = await fetch_ending(docket, key, record)
        if stored.kind != ERROR or not stored.payload:
            return None
        return docket.payloads.open_traceback(key, record.epoch, record.state, stored.payload)
    except (Undecodable, DocketError):
        return None


def traceback_in_letter(docket: DocketContext, record: LetterRecord) -> str | None:
    """The traceback in a dead letter. None if there is none, or if this process does not have the
    key to open it."""
    if not record.traceback:
        return None
    if not record.flags & SEALED_TRACEBACK:
        return record.traceback.decode("utf-8", "backslashreplace")
    try:
        return docket.payloads.open_traceback(record.key, record.epoch, ExecutionState.FAILED, record.traceback)
    except Undecodable:
        return None
