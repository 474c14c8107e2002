"""A call whose arguments are pickled already, by another program."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from .envelope import seal
from .packing import pack


@dataclass(frozen=True, slots=True)
class _Pickled:
    """Becomes the value inside when it is loaded. Until
    then nobody needs the modules that the value needs."""

    data: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.data,)


def encode_pickled_call(args: bytes, kwargs: bytes, trace_context: dict[str, str]) -> bytes:
    """What `encode_call` gives for the arguments inside, without loading them."""
    body = seal((_Pickled(args), _Pickled(kwargs)))
    headers = pack(trace_context) if trace_context else b""
    return len(headers).to_bytes(2, "little") + headers + body
