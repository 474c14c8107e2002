"""The default codec: pickle."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it ships none


class PickleCodec:
    """Any picklable Python value. cloudpickle handles the values that pickle cannot, such as
    lambdas and objects of __main__."""

    id = 1

    def encode(self, value: Any) -> bytes:
        try:
            data = pickle.dumps(value, protocol=5)
        except Exception:
            return _cloudpickle(value)
        # pickle stores objects of __main__ by reference, but a worker has a different __main__.
        return _cloudpickle(value) if b"__main__" in data else data

    def decode(self, data: memoryview | bytes) -> Any:
        return pickle.loads(data)


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
