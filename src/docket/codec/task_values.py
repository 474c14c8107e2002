"""What docket stores of a call and of its ending."""

from __future__ import annotations

import traceback
from typing import Any, cast

from docket.errors import TaskFailed, Undecodable, Unserializable

from .envelope import open_envelope, seal
from .packing import pack, unpack

_ERROR_TEXT = 2_000
_MEMBERS_SHOWN = 10


def encode_call(args: tuple[Any, ...], kwargs: dict[str, Any], trace_context: dict[str, str] | None = None) -> bytes:
    try:
        body = seal((args, kwargs))
    except Exception as error:
        raise Unserializable(f"{_culprit(args, kwargs)} cannot be serialised: {error_text(error)}"[:500]) from error
    if not trace_context:
        return b"\0\0" + body
    headers = pack(trace_context)
    return len(headers).to_bytes(2, "little") + headers + body


def _culprit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The first argument that cannot be stored by itself."""
    for place, value in [*enumerate(args, 1), *kwargs.items()]:
        try:
            seal(value)
        except Exception:
            which = f"argument {place}" if isinstance(place, int) else f"argument {place!r}"
            return f"{which}, of type {type(value).__name__},"
    return "the arguments together"


def decode_trace(data: bytes) -> dict[str, str]:
    """The trace context alone; never fails, since a broken one must not cost a task."""
    length = int.from_bytes(data[:2], "little")
    if not length:
        return {}
    try:
        return dict(unpack(data[2 : 2 + length]))
    except (ValueError, TypeError):
        return {}


def decode_call(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str]]:
    """The arguments of a task by position and by keyword, and the trace it belongs to."""
    length = 0 if data[:2] == b"\0\0" else int.from_bytes(data[:2], "little")
    value = open_envelope(data, 2 + length)
    try:
        args, kwargs = value
    except (TypeError, ValueError):
        raise Undecodable("payload holds no call") from None
    return args, kwargs, decode_trace(data) if length else {}


def encode_result(value: Any) -> bytes:
    try:
        return seal(value)
    except BaseException as error:
        reason = error_text(error)
        raise Unserializable(f"result of type {type(value).__name__} cannot be serialised: {reason}"[:500]) from error


decode_result = open_envelope


def error_text(error: BaseException) -> str:
    """Type and message, also of an exception that cannot say what it is about."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException as problem:
        return f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"


def encode_error(error: BaseException, most: int | None = None) -> bytes:
    """The exception itself if it can be stored in `most` bytes, else a TaskFailed that shows it."""
    if not isinstance(error, Exception):
        return seal(_ordinary(error))
    try:
        data = seal(error)
        if (most is None or len(data) <= most) and isinstance(open_envelope(data), Exception):
            return data
    except BaseException:
        # A task's exception must not end its worker by the way it is stored.
        pass
    shown = "".join(traceback.format_exception_only(error)).strip()[:_ERROR_TEXT]
    return seal(TaskFailed(shown))


def decode_error(data: bytes) -> Exception:
    try:
        error = open_envelope(data)
    except Undecodable as problem:
        return TaskFailed(str(problem))
    if isinstance(error, Exception):
        return error
    return _ordinary(error) if isinstance(error, BaseException) else TaskFailed(repr(error)[:_ERROR_TEXT])


def _ordinary(error: BaseException) -> TaskFailed:
    """Stands for SystemExit and its like: raised where somebody
    waits for the task, those would end that process."""
    return TaskFailed(_named(error)[:_ERROR_TEXT])


def _named(error: BaseException) -> str:
    """The error in words; a group names its first members."""
    text = error_text(error)
    inside: list[BaseException] = [error]
    named: list[str] = []
    while inside and len(named) < _MEMBERS_SHOWN:
        member = inside.pop(0)
        if isinstance(member, BaseExceptionGroup):
            members = cast(BaseExceptionGroup[BaseException], member).exceptions
            inside[:0] = members[:_MEMBERS_SHOWN]
        else:
            named.append(error_text(member))
    return text if named == [text] else f"{text}: {', '.join(named)}"
