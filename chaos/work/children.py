"""Functions in children, some of which kill their child or have to be killed."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from docket import Process, Retry, Timeout

from .base import COMPLETED, FAILED, Producer, Work
from .body import child_body

ATTEMPTS = 2
LIMIT_SECONDS = 0.4


def in_child(token: str, seconds: float, process: Process = Process()) -> str:
    """Returns the name of its run."""
    with child_body(token) as run:
        time.sleep(seconds)
    return run


def cancelled_in_child(token: str, seconds: float, process: Process = Process()) -> None:
    with child_body(token):
        time.sleep(seconds)


def crashing(
    token: str,
    how: str,
    crashes: int,
    retry: Retry = Retry(attempts=ATTEMPTS),
    process: Process = Process(),
) -> None:
    """Takes its child along in its first attempts."""
    with child_body(token):
        if retry.attempt <= crashes:
            _crash(how)


def _crash(how: str) -> None:
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)


def busy(
    token: str, timeout: Timeout = Timeout(timedelta(seconds=LIMIT_SECONDS)), process: Process = Process()
) -> None:
    """Computes until it is stopped."""
    with child_body(token, limit=LIMIT_SECONDS):
        while True:
            pass


def stubborn(
    token: str, timeout: Timeout = Timeout(timedelta(seconds=LIMIT_SECONDS)), process: Process = Process()
) -> None:
    """Cannot be asked to stop, only killed."""
    with child_body(token, limit=LIMIT_SECONDS):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(10)


class InChild(Work):
    name = "in a child"
    share = 2.0
    functions = (in_child,)

    async def produce(self, producer: Producer) -> None:
        seconds = producer.random.choice([0.0, 0.02, 0.2, 1.0, 3.0])
        await producer.add(in_child, producer.new_token(), seconds)


class LongInChild(Work):
    """Longer than several leases."""

    name = "long in a child"
    share = 0.1
    functions = ()

    async def produce(self, producer: Producer) -> None:
        await producer.add(in_child, producer.new_token(), 9.0)


class CancelledInChild(Work):
    name = "cancelled in a child"
    share = 0.3
    functions = (cancelled_in_child,)

    async def produce(self, producer: Producer) -> None:
        token = producer.new_token()
        if await producer.add(cancelled_in_child, token, 5.0):
            await producer.sleep(0.05, 2.0)
            await producer.cancel(token)


class Crashing(Work):
    name = "crashing"
    share = 0.5
    functions = (crashing,)

    async def produce(self, producer: Producer) -> None:
        how = producer.random.choice(["segfault", "exit", "kill"])
        await producer.add(crashing, producer.new_token(), how, producer.random.randrange(ATTEMPTS + 1))

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        return {COMPLETED if len(args) < 2 or args[1] < ATTEMPTS else FAILED}


class Unstoppable(Work):
    name = "unstoppable"
    share = 0.4
    functions = (busy, stubborn)

    async def produce(self, producer: Producer) -> None:
        function = busy if producer.random.random() < 0.7 else stubborn
        await producer.add(function, producer.new_token())

    def endings(self, function: str, args: Sequence[Any]) -> set[str]:
        return {FAILED}
