"""Faults of workers and producers: signals, blocked event loops, tasks that kill."""

from __future__ import annotations

import asyncio
import signal

from chaos.work.harmful import block_loop, kill_process, kill_process_once

from .arena import Arena
from .base import FaultKind


class KillWorker(FaultKind):
    name = "worker killed"
    times = 3

    async def inflict(self, arena: Arena) -> None:
        with arena.victim(arena.workers) as place:
            if place is not None and place.pid is not None:
                async with arena.fault(self.name, place.process_name):
                    place.send(signal.SIGKILL)


class PauseWorker(FaultKind):
    """Shorter and longer than the lease."""

    name = "worker paused"
    times = 3

    def __init__(self, *seconds: float) -> None:
        self._seconds = seconds or (0.4, 1.5, 3.0, 4.5)

    async def inflict(self, arena: Arena) -> None:
        with arena.victim(arena.workers) as place:
            if place is None or place.pid is None:
                return
            seconds = arena.random.choice(self._seconds)
            async with arena.fault(self.name, place.process_name, seconds=seconds):
                place.send(signal.SIGSTOP)
                await asyncio.sleep(seconds)
                place.send(signal.SIGCONT)


class StopWorker(FaultKind):
    """As a deploy does. A worker that does not work yet has no handler for the signal."""

    name = "worker stopped"
    times = 2

    async def inflict(self, arena: Arena) -> None:
        with arena.victim(arena.workers, ready=True) as place:
            if place is None:
                return
            before = place.process_name
            async with arena.fault(self.name, before):
                place.send(signal.SIGTERM)
                while place.process_name == before:
                    await asyncio.sleep(0.05)


class KillProducer(FaultKind):
    name = "producer killed"

    async def inflict(self, arena: Arena) -> None:
        with arena.victim(arena.producers) as place:
            if place is not None and place.pid is not None:
                async with arena.fault(self.name, place.process_name):
                    place.send(signal.SIGKILL)


class BlockLoop(FaultKind):
    """A task that blocks the event loop of its worker for longer than the lease."""

    name = "event loop blocked"

    async def inflict(self, arena: Arena) -> None:
        seconds = arena.random.choice([1.0, 3.0])
        async with arena.fault(self.name, "", seconds=seconds):
            await arena.requests.add(block_loop, arena.requests.new_token(), seconds)
            await asyncio.sleep(seconds)


class LethalTask(FaultKind):
    """A task that kills its process each time."""

    name = "lethal task"

    async def inflict(self, arena: Arena) -> None:
        async with arena.fault(self.name, ""):
            await arena.requests.add(kill_process, arena.requests.new_token())


class LethalTaskOnce(FaultKind):
    """A task that kills its process the first time."""

    name = "lethal task, once"

    async def inflict(self, arena: Arena) -> None:
        async with arena.fault(self.name, ""):
            await arena.requests.add(kill_process_once, arena.requests.new_token())
