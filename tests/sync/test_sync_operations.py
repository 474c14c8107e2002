"""What operators change with a sync docket: times of tasks, and tasks that match."""

from __future__ import annotations

from datetime import timedelta

import pytest

from docket import EmptyFilter, ExecutionState
from docket.inspection.filters import TaskFilter
from docket.sync import Docket
from tests.times import later

from .tasks import double


def test_a_task_gets_another_time(docket: Docket) -> None:
    when = later()
    docket.add(double, when=when, key="one")(1)
    other = when + timedelta(hours=2)

    assert docket.reschedule("one", other)
    found = docket.get_execution("one")
    assert found is not None
    assert abs(found.when - other) < timedelta(milliseconds=1)
    # Somebody who has seen the time before does not move it.
    assert not docket.reschedule("one", when, due=when)
    assert not docket.run_now("one", due=when)
    assert docket.run_now("one")
    found = docket.get_execution("one")
    assert found is not None
    assert found.state is ExecutionState.QUEUED
    assert not docket.run_now("one")


def test_a_run_that_nobody_has_declared_is_not_skipped(docket: Docket) -> None:
    docket.add(double, when=later(), key="one")(1)
    with pytest.raises(ValueError, match="no worker has declared"):
        docket.skip("one")
    assert docket.skip("two") is None


def test_tasks_that_match_are_cancelled_and_the_audit_says_so(docket: Docket) -> None:
    docket.add_many(docket.call(double, when=later(), key=f"{name}-1")(1) for name in ("order", "mail"))

    report = docket.cancel_matching(TaskFilter(key_prefix="order-"))

    assert (report.cancelled, report.cursor) == (1, None)
    assert docket.get_execution("mail-1") is not None
    with pytest.raises(EmptyFilter):
        docket.cancel_matching(TaskFilter())
    page = docket.audit(action="cancel_matching")
    assert [(entry.about, entry.count, entry.via) for entry in page.entries] == [("prefix:order-", 1, "python")]
