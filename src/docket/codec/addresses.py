"""Addresses of payloads: for which task or run a payload is sealed (docs/design/payloads.md). Two
different addresses of one purpose never have the same bytes."""

from __future__ import annotations

import struct

from docket.model.states import STATE_NUMBERS, ExecutionState

RESULT, ERROR = 1, 2
_MOST = 2**64 - 1
_RUN = struct.Struct("<QBB")
_LENGTH = struct.Struct("<I").pack


def call_address(key: str, function_name: str) -> bytes:
    return _text(key) + _text(function_name)


def ending_address(key: str, epoch: int, state: ExecutionState, kind: int) -> bytes:
    # A record may claim any epoch. No payload is sealed for the largest one.
    return _text(key) + _RUN.pack(epoch if 0 <= epoch < _MOST else _MOST, STATE_NUMBERS[state], kind)


def _text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return _LENGTH(len(data)) + data
