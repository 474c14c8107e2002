"""A call that the caller's thread sends is stored as one that the background loop sends
(docs/design/performance.md, Twins)."""

from __future__ import annotations

from typing import Any

import pytest

from docket.scheduler import Scheduler
from docket.sync import Docket
from docket.sync.caller_adds import CallerAdds
from tests.times import later

from .tasks import double


@pytest.mark.parametrize("is_due", [True, False])
@pytest.mark.parametrize("has_key", [True, False])
def test_a_thread_and_the_loop_store_the_same(
    docket: Docket, monkeypatch: pytest.MonkeyPatch, is_due: bool, has_key: bool
) -> None:
    when = None if is_due else later()
    by_thread: list[bool] = []
    send = CallerAdds.send

    def noted(self: CallerAdds, *call: Any) -> bool:
        by_thread.append(send(self, *call))
        return by_thread[-1]

    monkeypatch.setattr(CallerAdds, "send", noted)
    docket.add(double)(1)
    by_thread.clear()
    found: list[Any] = []
    for is_ready in (True, False):
        if not is_ready:
            monkeypatch.setattr(Scheduler, "is_ready_for_threads", lambda self: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        added = docket.add(double, when=when, key=f"k{is_ready}" if has_key else None)(7)
        stored = docket.get_execution(added.key)
        assert stored is not None
        assert stored.when == added.when or is_due
        found.append((added.state, added.disposition, stored.state, stored.args, stored.kwargs, stored.attempt))
        found[-1] += () if is_due else (stored.when,)
    assert by_thread == [True, False]
    assert found[0] == found[1]
