"""How much memory this process holds."""

from __future__ import annotations

import mmap
import sys
from typing import Any

_resource: Any
try:
    import resource

    _resource = resource
except ImportError:
    # Windows has no such module, and a worker must start there.
    _resource = None

# ru_maxrss is in kibibytes on Linux, and in bytes on macOS.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def memory_in_use() -> int:
    """The memory that this process holds, in bytes. Where the system does not say it, its peak, or
    0 if that is unknown, too."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0 if _resource is None else _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT


def peak_memory() -> int:
    """The most memory that this process has held. `ru_maxrss` cannot be used here: for a process
    that was just started, it is the peak of its parent."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return memory_in_use()
