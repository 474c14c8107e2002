"""For tests of applications that use docket: what is scheduled, and a clock to hold in the hand.

The fixtures `docket`, `worker` and `clock` come with the pytest plugin (docket.testing.plugin),
which pytest finds by itself.
"""

from .assertions import assert_no_tasks, assert_task_count, assert_task_not_scheduled, assert_task_scheduled
from .clock import Clock

__all__ = [
    "Clock",
    "assert_no_tasks",
    "assert_task_count",
    "assert_task_not_scheduled",
    "assert_task_scheduled",
]
