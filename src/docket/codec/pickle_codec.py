"""The default codec: pickle."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it ships none

from docket.errors import TaskFailed, Undecodable, Unserializable

from .error_texts import (
    LONGEST_TEXT,
    add_traceback,
    append_traceback,
    as_ordinary,
    as_task_failed,
    error_text,
    split_traceback,
    traceback_text,
)

_loads = pickle.loads
_dumps = pickle.dumps
# How a pickle begins: its protocol, and the length of its first frame.
_BEGINNING, _FRAME, _ONE_FRAME = 11, pickle.FRAME[0], 1024


class PickleCodec:
    """Any picklable Python value. cloudpickle handles the values that pickle cannot, such as
    lambdas and objects of __main__."""

    id = 1
    name = "pickle"
    runs_code = True

    # twin of: _encode (pickle_codec.py)
    def encode_call(self, function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        # Without a call of `_encode`: this is done for every task.
        try:
            data = _dumps((args, kwargs), protocol=5)
            if b"__main__" not in data:
                # A short pickle is one frame. Its beginning says nothing else, and would be stored
                # with every task.
                return data[_BEGINNING:] if data[2] == _FRAME and len(data) < _ONE_FRAME else data
        except Exception:
            pass
        try:
            return _cloudpickle((args, kwargs))
        except Exception as error:
            raise Unserializable(f"{_culprit(args, kwargs)} cannot be serialised: {error_text(error)}"[:500]) from error

    def decode_call(self, function: Callable[..., Any] | None, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            # Without its beginning, a pickle would pass for one of Python 2, whose modules had
            # other names.
            value = _loads(body, fix_imports=False)
        except BaseException as error:
            raise _undecodable(error) from error
        try:
            args, kwargs = value
        except (TypeError, ValueError):
            raise Undecodable("payload is not a call") from None
        return args, kwargs

    def encode_result(self, function: Callable[..., Any] | None, value: Any) -> bytes:
        try:
            return _encode(value)
        except BaseException as error:
            reason = error_text(error)
            raise Unserializable(
                f"result of type {type(value).__name__} cannot be serialised: {reason}"[:500]
            ) from error

    def decode_result(self, function: Callable[..., Any] | None, body: bytes) -> Any:
        return _decode(body)

    def encode_error(self, error: BaseException, most: int | None) -> bytes:
        shown = traceback_text(error)
        body = self._encode_exception(error, most)
        if shown is None:
            return body
        whole = append_traceback(body, shown)
        return whole if most is None or len(whole) <= most else body

    def _encode_exception(self, error: BaseException, most: int | None) -> bytes:
        if not isinstance(error, Exception):
            return _encode(as_ordinary(error))
        try:
            data = _encode(error)
            if (most is None or len(data) <= most) and isinstance(_decode(data), Exception):
                return data
        except BaseException:
            # Pickling a task's exception can raise anything. It must not end the worker.
            pass
        return _encode(as_task_failed(error))

    def decode_error(self, body: bytes) -> Exception:
        body, shown = split_traceback(body)
        try:
            error = _decode(body)
        except Undecodable as problem:
            if shown is None:
                raise
            # For instance, this process does not have the class.
            error = TaskFailed(str(problem))
        if not isinstance(error, Exception):
            is_error = isinstance(error, BaseException)
            error = as_ordinary(error) if is_error else TaskFailed(repr(error)[:LONGEST_TEXT])
        add_traceback(error, shown)
        return error

    def read_traceback(self, body: bytes) -> str | None:
        return split_traceback(body)[1]


# twin of: encode_call (pickle_codec.py)
def _encode(value: Any) -> bytes:
    try:
        data = _dumps(value, protocol=5)
    except Exception:
        return _cloudpickle(value)
    # pickle stores objects of __main__ by reference, but a worker has a different __main__.
    return _cloudpickle(value) if b"__main__" in data else data


def _decode(body: bytes) -> Any:
    try:
        return _loads(body)
    except BaseException as error:
        raise _undecodable(error) from error


def _undecodable(error: BaseException) -> Undecodable:
    """Unpickling can raise any exception, even SystemExit. It must not end the process that reads
    the value."""
    return Undecodable(f"payload cannot be decoded: {error_text(error)}"[:500])


def _culprit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A description of the first argument that cannot be serialised."""
    for position, value in [*enumerate(args, 1), *kwargs.items()]:
        try:
            _encode(value)
        except Exception:
            which = f"argument {position}" if isinstance(position, int) else f"argument {position!r}"
            return f"{which}, of type {type(value).__name__},"
    return "the arguments together"


def _refuse_file(file: Any) -> Any:
    for name in ("stdin", "stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    raise TypeError("an open file stays in its process; pass its path, or what it contains")


_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_Base: Any = cast(Any, cloudpickle).Pickler


class _Pickler(_Base):
    """A cloudpickle that refuses open files. cloudpickle itself
    would silently store the unread rest of a text file."""

    dispatch_table = _Base.dispatch_table.new_child(dict.fromkeys(_FILES, _refuse_file))


def _cloudpickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


class Pickled:
    """Unpickles to the value inside. Until then, the
    modules of the value need not be importable."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.data,)
