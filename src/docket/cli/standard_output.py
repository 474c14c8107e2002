"""Adapts standard output for commands."""

from __future__ import annotations

import io
import os
import sys
from typing import cast


def discard_output() -> None:
    """Sends output to the null device, after the reader has closed the pipe. Neither later writes
    nor the interpreter's exit then raise an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def accept_every_character() -> None:
    """Escapes characters that the output's encoding lacks:
    a log line or a table must not fail because of them."""
    output: object = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        cast("io.TextIOWrapper[io.BufferedWriter]", output).reconfigure(errors="backslashreplace")
