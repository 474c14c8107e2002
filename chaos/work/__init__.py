"""The kinds of work. A new kind is a file in this folder and a line in `WORK`."""

from __future__ import annotations

from .base import Function, Work
from .chains import Chains, CronWork
from .changes import Cancelled, Replaced, Struck
from .debounces import Debounced
from .harmful import Harmful
from .letters import Letters
from .limits import Limited, Rated
from .pauses import Paused, PausedLimit
from .plain import Large, Long, Plain, ThreeSeconds, Valued
from .retries import Retried
from .schedules import Scheduled

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
    Harmful(),
)

FUNCTIONS: list[Function] = [function for work in WORK for function in work.functions]
BY_FUNCTION: dict[str, Work] = {function.__name__: work for work in WORK for function in work.functions}
ENDLESS: tuple[str, ...] = tuple(key for work in WORK for key in work.endless)

__all__ = ["BY_FUNCTION", "ENDLESS", "FUNCTIONS", "WORK", "Function", "Work"]
