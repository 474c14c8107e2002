"""Chunks of calls and executions, for `add_many`, `replace_many` and `add_stream`."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from docket.execution import TaskCall

T = TypeVar("T")


def check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size}: it must be at least 1, or None for a single chunk")


def checked_calls(calls: Iterable[TaskCall]) -> Iterator[TaskCall]:
    """The calls, one by one. Raises TypeError at a value that is not a call."""
    for number, call in enumerate(calls):
        if not isinstance(call, TaskCall):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise TypeError(f"calls[{number}] is {call!r}; a call is made by docket.call(function)(arguments)")
        yield call


def in_chunks(executions: Sequence[T], chunk_size: int | None) -> Iterator[Sequence[T]]:
    size = chunk_size or max(len(executions), 1)
    for start in range(0, len(executions), size):
        yield executions[start : start + size]


async def chunks_of(items: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[list[T]]:
    """Lists of `size` items. Reads no further than the list that it yields."""
    chunk: list[T] = []
    if isinstance(items, AsyncIterable):
        async for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        return
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk
