"""A wall clock that is wrong, for one process. The monotonic clock is right."""

from __future__ import annotations

import datetime as datetime_module
import time
from typing import Any


def shift_clock(seconds: float) -> None:
    """Call it before anything else is imported that reads the clock."""
    right_time, right_time_ns, right_datetime = time.time, time.time_ns, datetime_module.datetime
    time.time = lambda: right_time() + seconds
    time.time_ns = lambda: right_time_ns() + int(seconds * 1e9)

    class Shifted(right_datetime):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return right_datetime.now(tz) + datetime_module.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime_module.UTC).replace(tzinfo=None)

    datetime_module.datetime = Shifted  # type: ignore[misc]
