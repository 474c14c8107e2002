"""A person at a terminal: single keys, and questions before a command that cannot be undone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from docket.cli.support.failures import CommandFailed
from docket.worker.program import listen

termios: Any
tty: Any
try:
    import termios
    import tty
except ModuleNotFoundError:
    # On Windows only Ctrl-C ends the command.
    termios = tty = None

QUIT = frozenset({b"q", b"Q", b"\x1b", b"\x03", b"\x04"})


@contextmanager
def quitting(stop: Callable[[], None]) -> Generator[None]:
    """Calls `stop` on q, Escape, Ctrl-C and SIGTERM. Restores the terminal at the end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        listen(loop, number, stop)
    try:
        with _keys(loop, stop):
            yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)


@contextmanager
def _keys(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Generator[None]:
    if termios is None or not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        # An empty read means that the terminal is gone.
        if (typed := os.read(terminal, 32)) in QUIT or not typed:
            stop()

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", envvar="DOCKET_YES", help="Do not ask. A command that is not at a terminal never asks."
    ),
]


def is_at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str) -> None:
    """Raises CommandFailed if the user does not agree."""
    if not typer.confirm(question):
        raise CommandFailed("nothing was changed")
