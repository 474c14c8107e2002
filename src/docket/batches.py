"""Batches of executions, for `add_many` and `replace_many`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size}: it must be at least 1, or None for a single chunk")


def in_chunks(executions: Sequence[T], chunk_size: int | None) -> Iterator[Sequence[T]]:
    size = chunk_size or max(len(executions), 1)
    for start in range(0, len(executions), size):
        yield executions[start : start + size]
