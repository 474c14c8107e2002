"""Adapts standard output for commands."""

from __future__ import annotations

import io
import os
import sys
from typing import cast


def discard_output(file: int | None = None) -> None:
    """Sends output to the null device, after the reader has closed the pipe. Neither later writes
    nor the interpreter's exit then raise an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno() if file is None else file)
    os.close(null)


def open_missing_streams() -> None:
    """Opens the null device for each standard stream that is closed (`docket worker >&-`). Python
    has None for such a stream, and its descriptor would go to the first connection, which `print`
    would then write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system gives the lowest free number, which is that of the stream.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def accept_every_character() -> None:
    """Escapes characters that the output's encoding lacks:
    a log line or a table must not fail because of them."""
    output: object = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        cast("io.TextIOWrapper[io.BufferedWriter]", output).reconfigure(errors="backslashreplace")
