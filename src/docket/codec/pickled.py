"""A call whose arguments another program has already pickled."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from .envelope import seal
from .packing import pack


@dataclass(frozen=True, slots=True)
class _Pickled:
    """Unpickles to the value inside. Until then, the
    modules of the value need not be importable."""

    data: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.data,)


def encode_pickled_call(args: bytes, kwargs: bytes, trace_context: dict[str, str]) -> bytes:
    """The same bytes as `encode_call` for these arguments, without unpickling them."""
    body = seal((_Pickled(args), _Pickled(kwargs)))
    headers = pack(trace_context) if trace_context else b""
    return len(headers).to_bytes(2, "little") + headers + body
