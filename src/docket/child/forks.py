"""Processes that a function in a child forks. Each of them is a copy of the child, with its code
and its descriptors, but it is not a child of the worker: it must not report on any run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial

from .pipe import Pipe
from .tickets import TicketReader

# The child ignores these signals, because they are not meant for it. The processes that its
# function forks do not ignore them.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Masks(threading.local):
    """The signals that a thread blocked before its fork."""

    before: set[int] | None = None


_masks = _Masks()


def watch_forks(pipe: Pipe, tickets: TicketReader) -> None:
    """From now on, each process that this one forks lets go of the pipe and of the tickets."""
    os.register_at_fork(
        before=_block_signals, after_in_parent=_unblock_signals, after_in_child=partial(_become_copy, pipe, tickets)
    )


def _block_signals() -> None:
    """A signal that the copy gets before its handlers are set must not be lost."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _unblock_signals() -> None:
    before, _masks.before = _masks.before, None
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become_copy(pipe: Pipe, tickets: TicketReader) -> None:
    pipe.let_go()
    tickets.let_go()
    with suppress(ValueError, OSError):
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


@contextmanager
def ending_copies(pipe: Pipe) -> Generator[None]:
    """Code of the function. A copy that comes to its end has ended: it goes no further."""
    try:
        yield
    except BaseException as error:
        if pipe.is_of_copy:
            _leave(error)
        raise
    if pipe.is_of_copy:
        _leave(None)


def _leave(error: BaseException | None) -> None:
    """Ends this process as Python would, but without
    the handlers that it inherited for its exit."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
        with suppress(Exception):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
