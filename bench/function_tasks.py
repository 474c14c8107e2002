"""The tasks of `bench.functions`. Children import this module."""

from __future__ import annotations

import time

from docket import Process


def nothing() -> None: ...


def blocks() -> None:
    time.sleep(0.05)


def nothing_in_child(process: Process = Process()) -> None: ...


def computes_briefly(process: Process = Process()) -> None:
    _burn(0.001)


def computes(process: Process = Process()) -> None:
    _burn(0.05)


def _burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
