"""Standard output as commands need it."""

from __future__ import annotations

import io
import os
import sys
from typing import cast


def discard_output() -> None:
    """The reader of our output has left. Nobody, the interpreter
    on its way out included, shall trip over that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def accept_every_character() -> None:
    """Characters that the output's encoding lacks are escaped:
    a log line or an answer must not fail because of them."""
    output: object = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        cast("io.TextIOWrapper[io.BufferedWriter]", output).reconfigure(errors="backslashreplace")
