"""What the operating system does for a child: ends it with its parent, and limits its memory."""

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
# ru_maxrss is in kibibytes on Linux, and in bytes on macOS.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PAGE = resource.getpagesize()


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


def memory_in_use() -> int:
    """The memory that this process holds, in bytes. Where the system does not say it, its peak."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT


def peak_memory() -> int:
    """The most memory that this process has held. `ru_maxrss` is no good here: for a process that
    was just started, it is the peak of its parent."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return memory_in_use()
