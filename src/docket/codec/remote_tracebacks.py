"""Tracebacks of another process, which travel with their exceptions."""

from __future__ import annotations

import contextlib
from typing import cast

from docket.errors import TaskFailed

# A traceback follows a pickled exception: its text, the length of the text (4 bytes), and this
# mark. A pickle ends with a full stop, and whoever unpickles it ignores what follows.
_MARK = b"\0docket traceback 1\0"
_LENGTH = 4
_NOTE = "In the worker:\n"


class RemoteTraceback(Exception):
    """The traceback of an exception in a child process. It shows as the cause of the exception."""

    def __init__(self, text: str, place: str = "", error: str = "", kind: str = "") -> None:
        super().__init__(text)
        self.text = text
        # What `failure_place`, `error_text` and `class_name` found in the child. The exception that
        # arrives may be another one, because not every exception can be pickled.
        self.place = place
        self.error = error
        self.kind = kind

    def __str__(self) -> str:
        return f"\n{self.text}"


def remote_cause(error: BaseException) -> RemoteTraceback | None:
    """What a child has said about an exception of its own."""
    cause = error.__cause__
    return cause if isinstance(cause, RemoteTraceback) and cause.kind else None


def append_traceback(body: bytes, text: str) -> bytes:
    data = text.encode()
    return body + data + len(data).to_bytes(_LENGTH, "little") + _MARK


def split_traceback(body: bytes) -> tuple[bytes, str | None]:
    """The pickled exception and its traceback. An exception of an earlier release has none."""
    if not body.endswith(_MARK):
        return body, None
    end = len(body) - len(_MARK) - _LENGTH
    start = end - int.from_bytes(body[end : end + _LENGTH], "little")
    if start < 0 or end < 0:
        return body, None
    return body[:start], body[start:end].decode("utf-8", "replace")


def add_traceback(error: Exception, text: str | None) -> None:
    """Adds the traceback to an exception as a note, which Python shows below the exception."""
    if not text:
        return
    if isinstance(error, TaskFailed):
        error.traceback = text
    # An exception may refuse every change, as a frozen dataclass does.
    with contextlib.suppress(Exception):
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            # A task that failed with the exception of another task: the text has that note, too.
            error.__notes__ = [note for note in cast("list[str]", notes) if not str(note).startswith(_NOTE)]
        error.add_note(_NOTE + text)
