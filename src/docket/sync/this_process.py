"""Parts that all sync dockets of one process share: the background event loop, and the end of the
process."""

from __future__ import annotations

import atexit
import importlib
import os
import threading
from typing import TYPE_CHECKING

from .loop_thread import LoopThread

if TYPE_CHECKING:
    from .open_docket import OpenDocket


class ThisProcess:
    """The background event loop, which starts when it is first used, and the open sessions. A
    forked child begins with neither."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._loop_thread: LoopThread | None = None
        self.sessions: set[OpenDocket] = set()
        # Objects of the parent. They are kept: if Python collected them one by one, some of them
        # would complain.
        self._inherited: list[object] = []

    def loop_thread(self) -> LoopThread:
        if self._pid != os.getpid():
            # uWSGI forks without a word to Python.
            self.begin_in_forked_child()
        found = self._loop_thread
        if found is None:
            with self._lock:
                found = self._loop_thread
                if found is None:
                    found = LoopThread()
                    found.start()
                    self._loop_thread = found
        return found

    def begin_in_forked_child(self) -> None:
        # Another thread of the parent may have held the lock.
        self._lock = threading.Lock()
        self._pid = os.getpid()
        found, self._loop_thread = self._loop_thread, None
        sessions, self.sessions = self.sessions, set()
        if found is not None:
            found.abandon()
        for session in sessions:
            session.abandon()
        self._inherited += [found, sessions]

    def close_all(self) -> None:
        """At the end of the process. Nobody is left to hear of an error."""
        found, self._loop_thread = self._loop_thread, None
        if found is None:
            return
        found.is_leaving = True
        for session in list(self.sessions):
            session.close_quietly()
        found.stop()


# The first use imports these: the codec of host names, what redis-py needs to read its own version,
# and what reads docket's scripts. If a process forks while one of its threads imports a module,
# that import never ends in the child. So they are imported before there is a thread.
for _module in ("email.parser", "encodings.idna", "importlib.readers"):
    importlib.import_module(_module)

this_process: ThisProcess = ThisProcess()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process.begin_in_forked_child)
atexit.register(this_process.close_all)
