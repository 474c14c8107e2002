"""Exceptions as text."""

from __future__ import annotations

import traceback
from typing import cast

from docket.errors import TaskFailed

from .remote_tracebacks import remote_cause

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
