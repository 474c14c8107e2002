"""Tools for testing applications that use docket: assertions
about scheduled tasks, and a clock that the test controls.

The fixtures `docket`, `worker` and `clock` come with the pytest plugin (docket.testing.plugin),
which pytest loads automatically.
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
