"""The stored form of calls, results and exceptions."""

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
    """A description of the first argument that cannot be serialised."""
    for position, value in [*enumerate(args, 1), *kwargs.items()]:
        try:
            seal(value)
        except Exception:
            which = f"argument {position}" if isinstance(position, int) else f"argument {position!r}"
            return f"{which}, of type {type(value).__name__},"
    return "the arguments together"


def decode_trace(data: bytes) -> dict[str, str]:
    """Only the trace context. Returns an empty one if it
    cannot be read, because it must not fail the task."""
    length = int.from_bytes(data[:2], "little")
    if not length:
        return {}
    try:
        return dict(unpack(data[2 : 2 + length]))
    except (ValueError, TypeError):
        return {}


def decode_call(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str]]:
    """The positional arguments, the keyword arguments and the trace context of a task."""
    length = 0 if data[:2] == b"\0\0" else int.from_bytes(data[:2], "little")
    value = open_envelope(data, 2 + length)
    try:
        args, kwargs = value
    except (TypeError, ValueError):
        raise Undecodable("payload is not a call") from None
    return args, kwargs, decode_trace(data) if length else {}


def encode_result(value: Any) -> bytes:
    try:
        return seal(value)
    except BaseException as error:
        reason = error_text(error)
        raise Unserializable(f"result of type {type(value).__name__} cannot be serialised: {reason}"[:500]) from error


decode_result = open_envelope


def error_text(error: BaseException) -> str:
    """The type and the message of an exception, even if its `__str__` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException as problem:
        return f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"


def encode_error(error: BaseException, most: int | None = None) -> bytes:
    """The exception itself if it can be stored in `most`
    bytes, otherwise a TaskFailed with its text."""
    if not isinstance(error, Exception):
        return seal(_ordinary(error))
    try:
        data = seal(error)
        if (most is None or len(data) <= most) and isinstance(open_envelope(data), Exception):
            return data
    except BaseException:
        # Pickling a task's exception can raise anything. It must not end the worker.
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
    """Replaces SystemExit and similar exceptions, which
    would end the process that waits for the task."""
    return TaskFailed(_named(error)[:_ERROR_TEXT])


def _named(error: BaseException) -> str:
    """The text of an error. An exception group includes its first members."""
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
