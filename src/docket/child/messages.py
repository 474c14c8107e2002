"""The messages between a worker and a child. Each message is a list in msgpack, after its length in
four bytes. The first item is the kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

from docket.codec.packing import pack, unpack

_LENGTH = 4


class MessageKind(IntEnum):
    # To the child.
    SETUP = 0  # pickled ChildSettings
    RUN = 1  # its number, whether it was sent ahead, and the fields of a RunRequest
    TERMINATE = 2  # Precedes SIGTERM: a SIGTERM without it is not from the worker.
    # To the worker. PROGRESS, EXTEND and DONE have the number of their run first: a thread that
    # outlives its run may still send.
    READY = 3  # peak memory so far
    PROGRESS = 4  # the fields of a ProgressChange
    LOG = 5  # the attributes of a log record
    EXTEND = 6  # seconds
    DONE = 7  # the fields of a RunResult
    SKIPPED = 8  # the number of a run that was sent ahead, and whose ticket was gone


def frame(kind: MessageKind, *fields: Any) -> bytes:
    body = pack([int(kind), *fields])
    return len(body).to_bytes(_LENGTH, "big") + body


class FrameReader:
    """Turns the bytes of a stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_amid_message(self) -> bool:
        """Whether the rest of a message has not arrived yet."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Yields the messages that are complete. Raises
        an error at bytes that are not a message."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _LENGTH:
                start = at + _LENGTH
                end = start + int.from_bytes(self._buffer[at:start], "big")
                if len(self._buffer) < end:
                    break
                message = unpack(bytes(self._buffer[start:end]))
                at = end
                yield message
        finally:
            del self._buffer[:at]


@dataclass(slots=True)
class RunRequest:
    """One run, for a child."""

    module: str
    qualname: str
    function_name: str
    key: str
    epoch: int
    # The sealed call, as the server has it.
    call: bytes
    due_ms: float
    started_ms: float
    attempt: int
    generation: int
    redelivered: bool
    # What this run adds to the state of the function's Timeout: seconds that are left.
    timeout_seconds: float | None
    memory: int | None
    # The trace context of the run's span.
    span: dict[str, str] = field(default_factory=dict[str, str])

    def as_fields(self) -> list[Any]:
        """The fields in their order. Names would take longer than most values."""
        return [
            self.module, self.qualname, self.function_name, self.key, self.epoch, self.call, self.due_ms,
            self.started_ms, self.attempt, self.generation, self.redelivered, self.timeout_seconds, self.memory,
            self.span,
        ]  # fmt: skip

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        return cls(*fields)


@dataclass(slots=True)
class RunResult:
    """How a run in a child ended."""

    # The sealed result. None if the function returned None, or failed.
    value: bytes | None = None
    # The pickled exception with its traceback, and the function that raised it.
    error: bytes | None = None
    place: str = ""
    # The text and the class of the exception, which cannot always be pickled itself.
    text: str = ""
    kind: str = ""
    # The text of a CancelledError that the function raised itself.
    cancelled: str | None = None
    # The pickled behaviours that the body has changed, by parameter, and the next run that it has
    # scheduled.
    behaviours: bytes | None = None
    # The memory that the child holds after the run, and the most that it ever held.
    memory: int = 0
    peak_memory: int = 0
    # How long the run lasted.
    seconds: float = 0.0

    def as_fields(self) -> list[Any]:
        """The fields in their order."""
        return [
            self.value, self.error, self.place, self.text, self.kind, self.cancelled, self.behaviours, self.memory,
            self.peak_memory, self.seconds,
        ]  # fmt: skip

    @classmethod
    def of(cls, fields: list[Any]) -> Self:
        return cls(*fields)
