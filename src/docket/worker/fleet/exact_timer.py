"""A timer that is exact to a tenth of a millisecond. The event loop rounds a wait up to whole
milliseconds, because `epoll` does."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

_CLOCK_MONOTONIC = 1
_BILLION = 1_000_000_000
# The file descriptor of a timer can be read after it has rung: eight bytes, how many times.
_COUNT_BYTES = 8


class _Setting(ctypes.Structure):
    """`struct itimerspec` of a 64-bit Linux: how often, and when for the first time."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_seconds", "every_ns", "seconds", "ns")]


class ExactTimer:
    """Calls `ring` in the event loop. Linux has timers with a file descriptor, and the event loop
    watches it as it watches sockets. On other systems, and if there is no file descriptor left,
    `set` does nothing and says so."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._file: int | None = None
        self._library: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
            return
        with contextlib.suppress(OSError, AttributeError):
            self._library = ctypes.CDLL(None)
            file: int = self._library.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            if file >= 0:
                self._watch(file)

    def _watch(self, file: int) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(file, self._has_rung)
        except (NotImplementedError, RuntimeError):
            # An event loop that cannot watch files.
            os.close(file)
        else:
            self._file = file

    def set(self, seconds: float) -> bool:
        """Rings after this time, instead of at the time that was set before. False if there is no
        such timer."""
        if self._file is None:
            return False
        # Zero would stop the timer.
        whole, ns = divmod(max(int(seconds * _BILLION), 1), _BILLION)
        setting = _Setting(0, 0, whole, ns)
        return self._library.timerfd_settime(self._file, 0, ctypes.byref(setting), None) == 0

    def stop(self) -> None:
        if self._file is not None:
            self._library.timerfd_settime(self._file, 0, ctypes.byref(_Setting()), None)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(file)
            os.close(file)

    def __del__(self) -> None:
        """The event loop was closed under the worker."""
        if self._file is not None:
            os.close(self._file)

    def _has_rung(self) -> None:
        # It may have been set again or stopped in the meantime, and then has nothing to read.
        with contextlib.suppress(BlockingIOError):
            if self._file is not None and os.read(self._file, _COUNT_BYTES):
                self._ring()
