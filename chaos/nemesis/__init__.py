"""The nemesis: inflicts faults by a schedule that follows from a seed. A new kind of fault is a
class in a file of this folder and a line in `FAULTS`."""

from __future__ import annotations

from .arena import Arena
from .base import FaultKind
from .garbage import Garbage, Oversized
from .network import Blackhole, Delay, Freeze, Lag, LateMessages, LateRequests, LostAnswers, Reset, Throttle
from .schedule import Nemesis
from .server import FlushScripts, KillClients, KillServer, PauseServer, ReadOnly, SqueezeMemory
from .workers import BlockLoop, KillProducer, KillWorker, LethalTask, LethalTaskOnce, PauseWorker, StopWorker

FAULTS: tuple[FaultKind, ...] = (
    KillWorker(),
    PauseWorker(),
    StopWorker(),
    KillProducer(),
    BlockLoop(),
    LethalTask(),
    LethalTaskOnce(),
    KillServer(),
    PauseServer(),
    KillClients(),
    FlushScripts(),
    SqueezeMemory(),
    ReadOnly(),
    Delay(),
    Lag(),
    Throttle(),
    Blackhole(),
    Freeze(),
    Reset(),
    LostAnswers(),
    LateMessages(),
    LateRequests(),
    Garbage(),
    Oversized(),
)

__all__ = ["FAULTS", "Arena", "FaultKind", "Nemesis"]
