"""Log lines on a terminal."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler

import docket.worker
from docket.cli.streams import discard_output


class LogConsole(Console):
    def on_broken_pipe(self) -> None:
        """The reader of the log has left. The worker goes on, where rich would end the process."""
        self.quiet = True
        discard_output()


def rich_handler() -> logging.Handler:
    """Coloured lines. Arguments in them are anybody's
    text, so nothing in them is taken as markup."""
    return RichHandler(
        console=LogConsole(),
        show_path=False,
        omit_repeated_times=False,
        markup=False,
        log_time_format="%H:%M:%S",
        rich_tracebacks=True,
        tracebacks_max_frames=20,
        # How the worker came to call a task is of no interest to its author.
        tracebacks_suppress=[docket.worker],
    )
