"""Tracebacks as text of bounded size, without the frames of docket itself."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import cast

import uncalled_for

from .error_texts import error_text, printable
from .remote_tracebacks import RemoteTraceback

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
