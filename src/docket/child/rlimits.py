"""Asks the operating system to end a child with its parent, and to limit its memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
# Where the kernel does not end a child with its parent, the child looks for its parent this often.
_CHECK_SECONDS = 0.5


def end_with_parent(parent: int) -> None:
    """From now on this process ends when its parent does, whatever it is doing."""
    if not _set_death_signal():
        threading.Thread(target=_watch, args=(parent,), name="docket - parent", daemon=True).start()
    if os.getppid() != parent:
        # The parent ended before the line above.
        os._exit(1)


def _set_death_signal() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def limit_memory(size: int | None) -> None:
    """Beyond this size, allocations fail with MemoryError. None removes the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = resource.RLIM_INFINITY if size is None else size
    if hard != resource.RLIM_INFINITY:
        soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
