"""What the process that ends a task writes into its dead letter."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from docket.codec.packing import pack, unpack
from docket.model.keeping import LETTERS, SIZE, Keep
from docket.storage.keys import text_bytes
from docket.storage.letters import SEALED_TRACEBACK

_LONGEST_NAME = 200
# Docket's own errors, which scripts write.
WORKER_LOST = "docket.errors.WorkerLost"
NOT_REGISTERED = "docket.errors.TaskNotRegistered"


class DeathCause(enum.IntEnum):
    """Why a task became a dead letter (lua/parts/letters.lua has the same numbers)."""

    FAILED = 1
    BURIED = 2
    UNDECODABLE = 3
    REFUSED = 4
    # A retried task that a strike or a limit kept from running.
    NOT_RUN = 5


@dataclass(frozen=True, slots=True)
class LetterNote:
    """How to keep a task that has failed for good, and what its ending does not say. With an age of
    0 only the chain of an automatic task is noted."""

    reason: DeathCause
    age_ms: int
    most: int = LETTERS
    most_bytes: int = SIZE
    error: str = ""
    place: str = ""
    # Of `Logged` arguments; see `fingerprint_lines`.
    arguments: bytes = b""
    text: str = ""
    traceback: bytes = b""
    is_sealed: bool = False
    rest: bytes = b""

    def row(self) -> tuple[Any, ...]:
        """In the format of the scripts."""
        return (
            int(self.reason),
            self.age_ms,
            self.most,
            self.most_bytes,
            SEALED_TRACEBACK if self.is_sealed else 0,
            text_bytes(self.error[:_LONGEST_NAME]),
            text_bytes(self.place[:_LONGEST_NAME]),
            self.arguments,
            text_bytes(self.text),
            self.traceback,
            self.rest,
        )

    @property
    def weight(self) -> int:
        """The approximate size in a script's arguments, in bytes."""
        return (
            60
            + len(self.error)
            + len(self.place)
            + len(self.arguments)
            + len(self.text)
            + len(self.traceback)
            + len(self.rest)
        )


def script_note(keep: Keep, reason: DeathCause, error: str, text: str) -> LetterNote:
    """The note for tasks that a script fails without a run."""
    return LetterNote(reason, keep.age_ms, keep.letters, keep.size, error, text=text)


def fingerprint_lines(fingerprints: dict[str, str]) -> bytes:
    """Fingerprints of arguments by the names of their parameters. Each line has a newline before
    and after it, so that a search for a line cannot find a part of another."""
    if not fingerprints:
        return b""
    lines = b"".join(text_bytes(f"{name}={mark}") + b"\n" for name, mark in fingerprints.items())
    return b"\n" + lines if len(lines) < 4_000 else b""


def fingerprint_line(name: str, mark: str) -> bytes:
    return b"\n" + text_bytes(f"{name}={mark}") + b"\n"


@dataclass(frozen=True, slots=True)
class RunNote:
    """Where and by what the last run of a dead letter was made."""

    worker: str | None = None
    docket_version: str | None = None
    python_version: str | None = None
    deploy: str | None = None
    trace: dict[str, str] | None = None
    duration: float | None = None

    def pack(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return pack({name: value for name, value in fields.items() if value is not None})


def read_run_note(data: bytes) -> RunNote:
    """Fields that are missing, damaged or of a newer release are left out."""
    try:
        fields: Any = unpack(data) if data else {}
        return RunNote(**{name: fields[name] for name in RunNote.__slots__ if name in fields})
    except (ValueError, TypeError, AttributeError):
        return RunNote()
