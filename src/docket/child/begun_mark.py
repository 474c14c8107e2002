"""Which run a child has begun, in memory that it shares with its worker."""

from __future__ import annotations

import mmap
import os
import tempfile

_SIZE = 8


class BegunMark:
    """The epoch of the last run that the child has begun. The worker looks only if the child has
    died: a message would cost it a step of its event loop for every run."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)

    def begin(self, epoch: int) -> None:
        self._memory[:] = epoch.to_bytes(_SIZE, "little")

    @property
    def epoch(self) -> int:
        return int.from_bytes(self._memory[:], "little")

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
