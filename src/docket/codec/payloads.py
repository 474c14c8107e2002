"""Seals and opens the payloads of one docket (docs/design/payloads.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from docket.model.states import ExecutionState

from .codecs import PICKLE, Codec, codec_named
from .envelope import HEADER_SIZE, header, raise_unreadable
from .packing import pack, unpack
from .pickle_codec import Pickled

Function = Callable[..., Any]
# The length of the trace headers of a call without any.
_NO_TRACE = b"\0\0"


class Payloads:
    """Seals and opens the calls, results and exceptions of one docket. Every verb takes the address
    of its payload: for which key and function, or for which run.

    The reader decides what it accepts: the codec that this docket writes, and the codecs in
    `accept`.
    """

    def __init__(self, codec: Codec = PICKLE, accept: Collection[str] = ()) -> None:
        self.codec: Codec = codec
        self._header = header(codec.id)
        self._call_header = _NO_TRACE + self._header
        self._readers = {header(known.id): known for known in (codec, *map(codec_named, accept))}

    # Calls

    def seal_call(
        self,
        key: str,
        function_name: str,
        function: Function | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace_context: dict[str, str] | None = None,
    ) -> bytes:
        """Raises Unserializable if the arguments cannot be stored."""
        body = self.codec.encode_call(function, args, kwargs)
        if not trace_context:
            return self._call_header + body
        return _trace_headers(trace_context) + self._header + body

    def seal_pickled_call(
        self, key: str, function_name: str, args: bytes, kwargs: bytes, trace_context: dict[str, str]
    ) -> bytes:
        """The call of a task whose arguments another program has pickled. They are not
        unpickled."""
        body = PICKLE.encode_result(None, (Pickled(args), Pickled(kwargs)))
        return _trace_headers(trace_context) + header(PICKLE.id) + body

    def open_call(
        self, key: str, function_name: str, function: Function | None, data: bytes
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str]]:
        """The positional arguments, the keyword arguments and the trace context of a task. Raises
        Undecodable."""
        at = 2 if data[:2] == _NO_TRACE else 2 + int.from_bytes(data[:2], "little")
        start = at + HEADER_SIZE
        codec = self._readers.get(data[at:start])
        if codec is None:
            raise_unreadable(data[at:start])
        args, kwargs = codec.decode_call(function, data[start:])
        return args, kwargs, _read_trace(data[2:at]) if at > 2 else {}

    # Endings

    def seal_result(self, key: str, epoch: int, state: ExecutionState, function: Function | None, value: Any) -> bytes:
        """Raises Unserializable if the value cannot be stored."""
        return self._header + self.codec.encode_result(function, value)

    def open_result(self, key: str, epoch: int, state: ExecutionState, function: Function | None, data: bytes) -> Any:
        """Raises Undecodable."""
        codec, body = self._open(data)
        return codec.decode_result(function, body)

    def result_body(self, key: str, epoch: int, state: ExecutionState, data: bytes) -> bytes:
        """The codec's bytes of a result or an exception, for clients that do not know envelopes."""
        return self._open(data)[1]

    def seal_error(
        self, key: str, epoch: int, state: ExecutionState, error: BaseException, most: int | None = None
    ) -> bytes:
        """The exception itself if it can be stored in `most` bytes, otherwise its text."""
        return self._header + self.codec.encode_error(error, most)

    def open_error(self, key: str, epoch: int, state: ExecutionState, data: bytes) -> Exception:
        """Raises Undecodable."""
        codec, body = self._open(data)
        return codec.decode_error(body)

    def _open(self, data: bytes) -> tuple[Codec, bytes]:
        codec = self._readers.get(data[:HEADER_SIZE])
        if codec is None:
            raise_unreadable(data[:HEADER_SIZE])
        return codec, data[HEADER_SIZE:]


def _trace_headers(trace_context: dict[str, str]) -> bytes:
    if not trace_context:
        return _NO_TRACE
    headers = pack(trace_context)
    return len(headers).to_bytes(2, "little") + headers


def _read_trace(headers: bytes) -> dict[str, str]:
    """Returns an empty context if it cannot be read, because it must not fail the task."""
    try:
        return dict(unpack(headers))
    except (ValueError, TypeError):
        return {}
