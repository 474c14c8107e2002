"""The kinds of work. A new kind is a file in this folder and a line in `WORK`."""

from __future__ import annotations

from .base import Function, Work
from .chains import Chains, CronWork
from .changes import Cancelled, Replaced, Struck
from .children import CancelledInChild, Crashing, InChild, LongInChild, Unstoppable, in_child
from .debounces import Debounced
from .harmful import Harmful
from .letters import Letters
from .limits import Limited, Rated
from .pauses import Paused, PausedLimit
from .plain import Large, Long, Plain, ThreeSeconds, Valued, valued
from .retries import Retried
from .schedules import Scheduled
from .threads import CancelledInThread, InThread, OverdueInThread, in_thread

WORK: tuple[Work, ...] = (
    Plain(),
    Valued(),
    ThreeSeconds(),
    Long(),
    Large(),
    Scheduled(),
    Limited(),
    Rated(),
    Retried(),
    Letters(),
    Cancelled(),
    Replaced(),
    Struck(),
    Chains(),
    CronWork(),
    Debounced(),
    Paused(),
    PausedLimit(),
    InThread(),
    CancelledInThread(),
    OverdueInThread(),
    InChild(),
    LongInChild(),
    CancelledInChild(),
    Crashing(),
    Unstoppable(),
    Harmful(),
)

FUNCTIONS: list[Function] = [function for work in WORK for function in work.functions]
BY_FUNCTION: dict[str, Work] = {function.__name__: work for work in WORK for function in work.functions}
# Functions whose result is the name of their run.
NAMING: set[str] = {function.__name__ for function in (valued, in_thread, in_child)}
ENDLESS: tuple[str, ...] = tuple(key for work in WORK for key in work.endless)

__all__ = ["BY_FUNCTION", "ENDLESS", "FUNCTIONS", "NAMING", "WORK", "Function", "Work"]
