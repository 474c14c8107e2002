"""Seals and opens the payloads of one docket (docs/design/payloads.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from docket.errors import PayloadRefused
from docket.model.states import ExecutionState

from .codecs import CODEC_IDS, PICKLE, Codec, codec_named
from .envelopes import (
    CALL,
    ENDING,
    ERROR,
    HEADER_SIZE,
    RESULT,
    STRIKE_CODEC,
    Envelopes,
    call_address,
    ending_address,
    header,
    raise_newer,
)
from .error_texts import error_text, short_name
from .keyring import Keyring
from .packing import pack, unpack
from .pickle_codec import Pickled

Function = Callable[..., Any]
UNSIGNED = "unsigned"


class Payloads:
    """Seals and opens the calls, results, exceptions and strikes of one docket. Every verb takes
    the address of its payload: for which key and function, or for which run.

    The reader decides what it accepts: what this docket writes, and what `accept` names (codecs,
    and `"unsigned"`).
    """

    def __init__(
        self,
        codec: str = PICKLE.name,
        keyring: Keyring | None = None,
        accept: Collection[str] = (),
        *,
        docket: str = "",
        encrypt: bool = False,
        exceptions: Iterable[type[Exception]] = (),
    ) -> None:
        if encrypt and keyring is None:
            raise ValueError("encrypt=True needs keys: pass signing=…")
        self.encrypts: bool = encrypt
        self.codec: Codec = codec_named(codec, exceptions)
        accepted = [codec_named(name, exceptions) for name in accept if name != UNSIGNED]
        self._codecs = {known.id: known for known in (self.codec, *accepted)}
        self._envelopes = Envelopes(docket, keyring, encrypt=encrypt, accepts_unsigned=UNSIGNED in accept)
        # None if this docket seals without a key.
        self._sealer = self._envelopes.sealer
        self._header = self._envelopes.header(self.codec.id)
        # Whether this docket may open calls that it would seal otherwise.
        self.reads_others: bool = self.signs or len(self._codecs) > 1
        self._call_header = NO_HEADERS + self._header
        # Plain envelopes of accepted codecs are opened without further checks.
        known = self._codecs.values() if self._envelopes.accepts_plain else ()
        self._plain_codecs = {header(codec.id): codec for codec in known}

    @property
    def signs(self) -> bool:
        """Whether this docket signs or encrypts. Then every result is sealed, even None."""
        return self._sealer is not None

    @property
    def may_run_code(self) -> bool:
        """Whether this docket decodes payloads that can run code, as pickles can."""
        return any(codec.runs_code for codec in self._codecs.values())

    @property
    def accepts_unsigned(self) -> bool:
        return self._envelopes.accepts_plain

    def error_text(self, error: BaseException) -> str:
        """The text of an exception for the record, where everybody can read it."""
        return f"{short_name(error)} (its text is encrypted)" if self.encrypts else error_text(error)

    # Calls

    # twin of: call_sealer (payloads.py)
    def seal_call(
        self,
        key: str,
        function_name: str,
        function: Function | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace_context: dict[str, str] | None = None,
        shown: dict[str, str] | None = None,
    ) -> bytes:
        """Raises Unserializable if the arguments cannot be stored. `shown` has the arguments for
        display."""
        body = self.codec.encode_call(function, args, kwargs)
        if shown and self.encrypts:
            shown = None
        head = pack_headers(trace_context, shown) + self._header if trace_context or shown else self._call_header
        if self._sealer is None:
            return head + body
        return self._sealer.seal(CALL, call_address(key, function_name), head, body)

    # twin of: seal_call (payloads.py)
    def call_sealer(
        self,
        function_name: str,
        function: Function | None,
        trace_context: dict[str, str] | None,
        beginning: bytes = b"",
        show: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, str]] | None = None,
    ) -> Callable[[str, tuple[Any, ...], dict[str, Any]], bytes]:
        """A function that seals calls of one function, each after the same bytes. `show` makes the
        arguments for display."""
        if show is not None:
            return lambda key, args, kwargs: (
                beginning
                + self.seal_call(key, function_name, function, args, kwargs, trace_context, show(args, kwargs))
            )
        head = pack_headers(trace_context, None) + self._header if trace_context else self._call_header
        encode, sealer, whole = self.codec.encode_call, self._sealer, beginning + head
        if sealer is None:
            return lambda key, args, kwargs: whole + encode(function, args, kwargs)

        def seal(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
            return beginning + sealer.seal(CALL, call_address(key, function_name), head, encode(function, args, kwargs))

        return seal

    def seal_pickled_call(
        self, key: str, function_name: str, args: bytes, kwargs: bytes, trace_context: dict[str, str]
    ) -> bytes:
        """The call of a task whose arguments another program has pickled. They are not
        unpickled."""
        body = PICKLE.encode_result(None, (Pickled(args), Pickled(kwargs)))
        head = pack_headers(trace_context, None) + self._envelopes.header(PICKLE.id)
        return self._envelopes.seal(CALL, call_address(key, function_name), head, body)

    def open_call(
        self, key: str, function_name: str, function: Function | None, data: bytes
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str]]:
        """The positional arguments, the keyword arguments and the trace context of a task. Raises
        Undecodable."""
        at = 2 if data[:2] == NO_HEADERS else 2 + int.from_bytes(data[:2], "little")
        start = at + HEADER_SIZE
        codec = self._plain_codecs.get(data[at:start])
        if codec is not None:
            body = data[start:]
        else:
            codec, body = self._open(CALL, call_address(key, function_name), data, at)
        args, kwargs = codec.decode_call(function, body)
        return args, kwargs, read_trace(data[2:at]) if at > 2 else {}

    def is_outdated(self, call: bytes) -> bool:
        """Whether this docket would seal the call otherwise today: with another key or codec."""
        at = 2 + int.from_bytes(call[:2], "little")
        return call[at : at + len(self._header)] != self._header

    # Endings

    def seal_result(self, key: str, epoch: int, state: ExecutionState, function: Function | None, value: Any) -> bytes:
        """Raises Unserializable if the value cannot be stored."""
        body = self.codec.encode_result(function, value)
        if self._sealer is None:
            return self._header + body
        return self._sealer.seal(ENDING, ending_address(key, epoch, state, RESULT), self._header, body)

    def open_result(self, key: str, epoch: int, state: ExecutionState, function: Function | None, data: bytes) -> Any:
        """Raises Undecodable."""
        codec = self._plain_codecs.get(data[:HEADER_SIZE])
        if codec is not None:
            return codec.decode_result(function, data[HEADER_SIZE:])
        codec, body = self._open(ENDING, ending_address(key, epoch, state, RESULT), data)
        return codec.decode_result(function, body)

    def seal_error(
        self, key: str, epoch: int, state: ExecutionState, error: BaseException, most: int | None = None
    ) -> bytes:
        """The exception itself if it can be stored in `most` bytes, otherwise its text; and its
        traceback, if there is space for it."""
        body = self.codec.encode_error(error, most)
        if self._sealer is None:
            return self._header + body
        return self._sealer.seal(ENDING, ending_address(key, epoch, state, ERROR), self._header, body)

    def open_error(self, key: str, epoch: int, state: ExecutionState, data: bytes) -> Exception:
        """Raises Undecodable."""
        codec, body = self._open(ENDING, ending_address(key, epoch, state, ERROR), data)
        return codec.decode_error(body)

    def open_traceback(self, key: str, epoch: int, state: ExecutionState, data: bytes) -> str | None:
        """The traceback of a sealed exception, or None if it has none. The exception is not
        decoded, so this is safe for observers. Raises Undecodable."""
        codec, body = self._open(ENDING, ending_address(key, epoch, state, ERROR), data)
        return codec.read_traceback(body)

    def result_body(self, key: str, epoch: int, state: ExecutionState, data: bytes, *, is_error: bool) -> bytes:
        """The codec's bytes of a result or an exception, for clients that do not know envelopes."""
        return self._open(ENDING, ending_address(key, epoch, state, ERROR if is_error else RESULT), data)[1]

    # Strikes and pauses

    def seal_rule(self, kind: str, rule: bytes) -> bytes:
        """Seals an encoded rule, a `strike` or a `pause`. The bytes name all that the rule is
        about, so it needs no other address."""
        return self._envelopes.seal(kind.encode(), b"", self._envelopes.header(STRIKE_CODEC), rule)

    def open_rule(self, kind: str, data: bytes) -> bytes:
        """Raises Undecodable."""
        codec_id, rule = self._envelopes.open(kind.encode(), b"", data)
        if codec_id != STRIKE_CODEC:
            raise_newer(data[:HEADER_SIZE])
        return rule

    def _open(self, purpose: bytes, address: bytes, data: bytes, at: int = 0) -> tuple[Codec, bytes]:
        if self._sealer is not None and data.startswith(self._header, at):
            return self.codec, self._sealer.open_own(purpose, address, data, at + len(self._header))
        codec_id, body = self._envelopes.open(purpose, address, data, at)
        codec = self._codecs.get(codec_id)
        if codec is not None:
            return codec, body
        name = next((name for name, id in CODEC_IDS.items() if id == codec_id), None)
        if name is None:
            raise_newer(data[at : at + HEADER_SIZE])
        raise PayloadRefused(
            f"the codec of the payload is {name!r}, but this docket reads {', '.join(self._names())}; "
            f"accept={{{name!r}}} lets it read both",
            "codec",
        )

    def _names(self) -> list[str]:
        return [repr(codec.name) for codec in self._codecs.values()]


# The length of the headers of a call without any.
NO_HEADERS = b"\0\0"
_SHOWN = "docket.arguments"
_LENGTH = 2


def pack_headers(trace_context: Mapping[str, str] | None, shown: Mapping[str, str] | None) -> bytes:
    if not shown:
        if not trace_context:
            return NO_HEADERS
        data = pack(trace_context)
    else:
        data = pack({**trace_context, _SHOWN: shown} if trace_context else {_SHOWN: shown})
    return len(data).to_bytes(_LENGTH, "little") + data


def read_trace(headers: bytes) -> dict[str, str]:
    """Returns an empty context if it cannot be read, because it must not fail the task."""
    found = _read(headers)
    found.pop(_SHOWN, None)
    return found


def shown_arguments(call: bytes) -> dict[str, str] | None:
    """The `Logged` arguments of a call by parameter, as text for a display. The beginning of the
    call is enough. None if the call has no such texts, or if the headers are cut.

    Nothing is decoded or verified: anybody who writes to the server may have written them."""
    length = int.from_bytes(call[:_LENGTH], "little")
    if not length or len(call) < _LENGTH + length:
        return None
    shown: Any = _read(call[_LENGTH : _LENGTH + length]).get(_SHOWN)
    if not isinstance(shown, dict):
        return None
    return {str(name): str(text) for name, text in shown.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - anything


def _read(headers: bytes) -> dict[str, Any]:
    try:
        return dict(unpack(headers))
    except (ValueError, TypeError):
        return {}
