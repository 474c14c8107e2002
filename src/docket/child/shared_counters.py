"""Two numbers in memory that a child shares with its worker."""

from __future__ import annotations

import mmap
import os
import tempfile

_WORD = 8
_SIZE = 2 * _WORD


class SharedCounters:
    """The number of the last run that the child has begun, and that of the run that the worker
    ends. The worker looks at the first only if the child has died: a message would cost it a step
    of its event loop for every run."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)

    def begin(self, number: int) -> None:
        self._memory[:_WORD] = number.to_bytes(_WORD, "little")

    @property
    def begun(self) -> int:
        return int.from_bytes(self._memory[:_WORD], "little")

    def end(self, number: int) -> None:
        self._memory[_WORD:] = number.to_bytes(_WORD, "little")

    @property
    def ended(self) -> int:
        return int.from_bytes(self._memory[_WORD:], "little")

    def close(self) -> None:
        self._memory.close()


def new_memory() -> int:
    """The descriptor of memory that processes can share."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("docket")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor
