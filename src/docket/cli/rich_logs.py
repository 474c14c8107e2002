"""Formats log lines for a terminal."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler

import docket.worker
from docket.cli.standard_output import discard_output


class LogConsole(Console):
    def on_broken_pipe(self) -> None:
        """Continues without a log when its reader closes the pipe. Rich would end the process."""
        self.quiet = True
        discard_output()


def rich_handler() -> logging.Handler:
    """Returns a handler for coloured lines. Their arguments
    come from users, so markup in them is not interpreted."""
    return RichHandler(
        console=LogConsole(),
        show_path=False,
        omit_repeated_times=False,
        markup=False,
        log_time_format="%H:%M:%S",
        rich_tracebacks=True,
        tracebacks_max_frames=20,
        # Frames of the worker do not help the author of a task.
        tracebacks_suppress=[docket.worker],
    )
