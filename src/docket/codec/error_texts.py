"""Exceptions as text: their names, their messages, and their tracebacks, also those of another
process."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import cast

import uncalled_for

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
    """The description of an exception that a child has sent."""
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


LONGEST_TEXT = 2_000
_MEMBERS_SHOWN = 10


def printable(text: str) -> str:
    """Lone surrogates cannot be encoded, so they become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def class_name(error: BaseException) -> str:
    """The name of the class of an exception, with its module."""
    remote = remote_cause(error)
    return class_name_of(type(error)) if remote is None else remote.kind


def class_name_of(kind: type[BaseException]) -> str:
    """The name of an exception class with its module, as filters of dead letters find it."""
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def short_name(error: BaseException) -> str:
    """The name of the class of an exception, without its module."""
    remote = remote_cause(error)
    return type(error).__name__ if remote is None else remote.kind.rpartition(".")[2]


def error_text(error: BaseException) -> str:
    """The type and the message of an exception, even if its `__str__` fails."""
    remote = remote_cause(error)
    if remote is not None:
        return remote.error
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException as problem:
        return f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"


def as_task_failed(error: BaseException) -> TaskFailed:
    """Replaces an exception that cannot be stored."""
    return TaskFailed("".join(traceback.format_exception_only(error)).strip()[:LONGEST_TEXT])


def as_ordinary(error: BaseException) -> TaskFailed:
    """Replaces SystemExit and similar exceptions, which
    would end the process that waits for the task."""
    return TaskFailed(_named(error)[:LONGEST_TEXT])


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


LONGEST_TRACEBACK = 8_000
_LONGEST_MESSAGE = 2_000
_MOST_EXCEPTIONS = 20
_MOST_CHAINED = 10
_FIRST_FRAMES, _LAST_FRAMES = 50, 100

_DOCKET = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# The tasks that docket brings along are like a user's.
_OWN_TASKS = _DOCKET + "tasks.py"
_MACHINERY = (_DOCKET, os.path.dirname(os.path.abspath(uncalled_for.__file__)) + os.sep)
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGES = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

Frames = list[tuple[FrameType, int]]


def traceback_text(error: BaseException) -> str | None:
    """The traceback of an exception, as Python shows it: with causes, the members of groups, and
    notes. At most 8,000 bytes of UTF-8; a longer text is cut in the middle. None if the exception
    was not raised and so has no traceback.

    Never raises, whatever the exception does.
    """
    try:
        if not _was_raised(error):
            return None
        return cut_middle("".join(_Text(_MOST_EXCEPTIONS).lines(error)).rstrip("\n"), LONGEST_TRACEBACK)
    except BaseException:
        # Attributes of a user's exception may be properties that raise anything.
        return cut_middle(error_text(error), LONGEST_TRACEBACK)


def failure_place(error: BaseException) -> str:
    """Where an exception was raised: module and function of the innermost frame of the user's code,
    or else of the innermost frame. It has no line number, so it stays the same when other lines
    change. Empty if the exception was not raised."""
    try:
        remote = error.__cause__
        if isinstance(remote, RemoteTraceback):
            return remote.place
        frames = [frame for frame, _ in _frames(error.__traceback__)]
        own = [frame for frame in frames if not _is_machinery(frame)]
        users = [frame for frame in own if not _is_library(frame)]
        found = (users or own or frames)[-1:]
        return printable(f"{found[0].f_globals.get('__name__')}.{found[0].f_code.co_qualname}")[:200] if found else ""
    except Exception:
        return ""


def cut_middle(text: str, most: int) -> str:
    """A printable text of at most `most` bytes of UTF-8. If it is cut, the end keeps more than the
    beginning, because the end says what went wrong."""
    # Characters that do not fit in any case need no encoding.
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
        is_cut = True
    else:
        is_cut = False
    data = printable(text).encode()
    if len(data) <= most and not is_cut:
        return data.decode()
    mark = "\n… (cut) …\n".encode()
    room = max(most - len(mark), 0)
    head = room * 3 // 8
    return (data[:head].decode(errors="ignore").encode() + mark + data[len(data) - (room - head) :]).decode(
        errors="ignore"
    )


def _was_raised(error: BaseException) -> bool:
    return (
        error.__traceback__ is not None
        or error.__cause__ is not None
        or error.__context__ is not None
        or isinstance(error, BaseExceptionGroup)
    )


class _Text:
    """Formats one exception with all that belongs to it, up to a number of exceptions."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._seen: set[int] = set()

    def lines(self, error: BaseException) -> Iterator[str]:
        """Pieces of text, each of which ends with a line break."""
        chain = self._chain(error)
        for at in range(len(chain) - 1, -1, -1):
            yield from self._one(chain[at])
            if at == len(chain) - 1 and len(chain) == _MOST_CHAINED and self._cut_chain(chain):
                yield "\n… (more exceptions in between) …\n"
            if at:
                yield _CAUSE if chain[at - 1].__cause__ is not None else _CONTEXT

    def _chain(self, error: BaseException) -> list[BaseException]:
        """The exception, its cause or context, and so on. A long chain has its last exceptions and
        its origin."""
        chain: list[BaseException] = []
        following: BaseException | None = error
        while following is not None and id(following) not in self._seen and len(self._seen) < 1_000:
            self._seen.add(id(following))
            chain.append(following)
            if isinstance(following.__cause__, RemoteTraceback):
                break
            following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
        return chain if len(chain) <= _MOST_CHAINED else [*chain[: _MOST_CHAINED - 1], chain[-1]]

    def _cut_chain(self, chain: list[BaseException]) -> bool:
        before, origin = chain[-2:]
        return origin is not before.__cause__ and origin is not before.__context__

    def _one(self, error: BaseException) -> Iterator[str]:
        self._left -= 1
        remote = error.__cause__
        if isinstance(remote, RemoteTraceback):
            yield remote.text + "\n"
            return
        frames = _shown_frames(list(_frames(error.__traceback__)))
        if frames:
            group = "Exception Group " if isinstance(error, BaseExceptionGroup) else ""
            yield f"{group}Traceback (most recent call last):\n"
            yield from _frame_lines(frames)
        yield from _message_lines(cast(BaseException, error))
        if isinstance(error, BaseExceptionGroup):
            yield from self._members(cast("BaseExceptionGroup[BaseException]", error))

    def _members(self, group: BaseExceptionGroup[BaseException]) -> Iterator[str]:
        count = len(group.exceptions)
        for number, member in enumerate(group.exceptions, 1):
            if self._left <= 0:
                yield f"  +- … ({count - number + 1} more)\n"
                return
            yield f"  +- {number} of {count}\n"
            for piece in self.lines(member):
                yield "".join(f"  | {line}\n" for line in piece.splitlines())


def _frames(start: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    return traceback.walk_tb(start)


def _is_machinery(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_MACHINERY) and name != _OWN_TASKS


def _is_library(frame: FrameType) -> bool:
    """Whether the frame is of the standard library or of an installed package."""
    name = frame.f_code.co_filename
    return name.startswith(("<frozen ", _STANDARD_LIBRARY)) or any(folder in name for folder in _PACKAGES)


def _is_standard(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return _is_library(frame) and not any(folder in name for folder in _PACKAGES)


def _shown_frames(frames: Frames) -> Frames:
    """The frames from the first one of the user's code on. Frames of docket are left out, unless
    the user's code called docket and the error is from there."""
    users = [at for at, (frame, _) in enumerate(frames) if not _is_machinery(frame) and not _is_standard(frame)]
    if users:
        first, last = users[0], users[-1]
        return [row for at, row in enumerate(frames) if at > last or (at >= first and not _is_machinery(row[0]))]
    after = 1 + max((at for at, (frame, _) in enumerate(frames) if _is_machinery(frame)), default=-1)
    return frames[after:] or frames[-1:]


def _frame_lines(frames: Frames) -> Iterable[str]:
    """Without the marks below each line: they take space, and Python parses the line for them."""
    most = _FIRST_FRAMES + _LAST_FRAMES
    if len(frames) <= most:
        yield from traceback.StackSummary.extract(frames, lookup_lines=False).format()
        return
    yield from traceback.StackSummary.extract(frames[:_FIRST_FRAMES], lookup_lines=False).format()
    yield f"  … ({len(frames) - most} frames) …\n"
    yield from traceback.StackSummary.extract(frames[-_LAST_FRAMES:], lookup_lines=False).format()


def _message_lines(error: BaseException) -> Iterator[str]:
    if isinstance(error, SyntaxError):
        # Python shows the line and the position.
        yield from traceback.format_exception_only(type(error), error)
        return
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = error_text(error).removeprefix(kind.__name__)
    if text == ": ":
        text = ""
    yield cut_middle(name + text, _LONGEST_MESSAGE) + "\n"
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list | tuple):
        for note in cast("list[object]", notes)[:10]:
            yield cut_middle(note if isinstance(note, str) else repr(note), _LONGEST_MESSAGE) + "\n"
