"""Reads the messages on the channel of a task. Anybody may have published them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, cast

from docket.codec.proofs import proven_body
from docket.errors import Undecodable
from docket.model.states import ExecutionState
from docket.storage.keys import text_bytes
from docket.storage.records import FinishedRecord, read_finished

_STATES = frozenset(state.value for state in ExecutionState)
_TIMES = ("when", "started_at", "completed_at", "updated_at")
_TEXTS = ("worker", "error", "message")
_NUMBERS = ("current", "total")
# The end of the year 9999, in ms.
_LATEST = 253_402_300_799_999
_LONGEST = 64 * 1024


def read_event(message: bytes) -> dict[str, Any] | None:
    """The event in a message: a state or a progress. It is for displays only, because it does not
    prove where it comes from. None for any other message."""
    if not message.startswith(b"{") or len(message) > _LONGEST:
        return None
    try:
        event = json.loads(message)
    except (ValueError, RecursionError):
        return None
    kind, state = event.get("type"), event.get("state")
    is_known = kind == "progress" or (kind == "state" and isinstance(state, str) and state in _STATES)
    return cast("dict[str, Any]", event) if is_known and has_sound_fields(event) else None


def has_sound_fields(event: dict[str, Any]) -> bool:
    """Whether times, texts and numbers of an event or of stored progress have their types."""
    return (
        all(_is_number(event.get(name), _LATEST) for name in _TIMES)
        and all(_is_number(event.get(name), math.inf) for name in _NUMBERS)
        and all(isinstance(event.get(name), str | None) for name in _TEXTS)
    )


def _is_number(value: object, most: float) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and -most <= value <= most)


def announces_end(message: bytes) -> bool:
    """Whether this is the event of an ending, which its proven ending should follow. Events of
    earlier releases have the record behind a newline."""
    if b"\n" in message:
        return True
    event = read_event(message)
    return event is not None and event["type"] == "state" and ExecutionState(event["state"]).finished


@dataclass(slots=True)
class ProvenEnding:
    """The end of a run, which a script of the docket has published. `record` is None if it has to
    be read from the server."""

    goes_on: bool
    record: FinishedRecord | None


def is_ending(message: bytes) -> bool:
    return message.startswith(b"E")


def read_ending_message(secret: bytes | None, key: str, message: bytes) -> ProvenEnding | None:
    """None if the message does not prove that a script of this docket sent it."""
    body = proven_body(secret, b"E", b"ending", text_bytes(key), message)
    if body is None or body[:1] not in (b"e", b"g"):
        return None
    try:
        record = read_finished(body[1:]) if len(body) > 1 else None
    except Undecodable:
        record = None
    return ProvenEnding(body[:1] == b"g", record)
