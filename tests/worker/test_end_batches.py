"""When the worker reads the pipes of busy children. The tests play the children."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

from docket.child.messages import RunRequest
from docket.dependencies import Process
from docket.worker.children.child_runs import ChildCall
from docket.worker.children.children import EndBatches


class FakeRuns:
    def __init__(self, enough_until: float, time_limit: float) -> None:
        request = RunRequest("m", "f", "f", "key", 1, b"", 0.0, 0.0, 1, 0, False, None, None)
        self.enough_until = enough_until
        self.usual_seconds = 0.001
        self.present: ChildCall | None = ChildCall(
            "f", Process(), lambda: request, lambda kind, fields: None, time_limit
        )

    def __len__(self) -> int:
        return int(self.present is not None)


class FakeChild:
    """Notes what happens to its pipe. It has ended its runs after so many reads."""

    def __init__(self, enough_until: float, *, time_limit: float = math.inf, reads: int = 1) -> None:
        self.runs = FakeRuns(enough_until, time_limit)
        self.is_alive = True
        self.is_amid_message = False
        self.has_sent = True
        self.events: list[str] = []
        self.resumed = asyncio.Event()
        self._reads = reads

    def pause_reading(self) -> None:
        self.events.append("pause")

    def resume_reading(self) -> None:
        self.events.append("resume")
        self.resumed.set()

    def read(self) -> bool:
        self.events.append("read")
        self._reads -= 1
        if not self._reads:
            self.runs.present = None
        return self.has_sent


def later() -> float:
    """As if the child had an hour to go."""
    return asyncio.get_running_loop().time() + 3600


async def read_all(*children: Any) -> None:
    end_batches = EndBatches()
    for child in children:
        end_batches.has_read(child)
    await asyncio.gather(*(child.resumed.wait() for child in children if "pause" in child.events))


async def test_a_child_with_enough_to_do_is_read_later() -> None:
    child = FakeChild(later())
    await read_all(child)
    assert child.events == ["pause", "read", "resume"]


async def test_a_child_that_goes_on_is_read_again_and_again() -> None:
    child = FakeChild(later(), reads=3)
    await read_all(child)
    assert child.events == ["pause", "read", "read", "read", "resume"]


async def test_a_run_that_lasts_longer_than_those_before_is_not_asked_again_and_again() -> None:
    child = FakeChild(later(), reads=99)
    child.has_sent = False
    await read_all(child)
    assert child.events == ["pause", "read", "resume"]


async def test_ends_of_runs_that_are_not_short_do_not_wait() -> None:
    child = FakeChild(later())
    child.runs.usual_seconds = 0.05
    await read_all(child)
    assert child.events == []


async def test_children_are_read_at_the_same_time() -> None:
    one, other = FakeChild(later()), FakeChild(later())
    one.events = other.events
    await read_all(one, other)
    # Both are read before the first of them goes on.
    assert one.events == ["pause", "pause", "read", "read", "resume", "resume"]


async def test_a_child_without_a_run_behind_the_present_one_is_read_at_once() -> None:
    child = FakeChild(0.0)
    await read_all(child)
    assert child.events == []


async def test_an_end_does_not_wait_if_the_time_out_of_its_run_is_short() -> None:
    child = FakeChild(later(), time_limit=0.05)
    await read_all(child)
    assert child.events == []


async def test_the_rest_of_a_large_message_is_read_as_it_comes() -> None:
    child, other = FakeChild(later(), reads=99), FakeChild(later())
    other.is_amid_message = True
    end_batches = EndBatches()
    end_batches.has_read(cast(Any, other))
    assert other.events == []
    end_batches.has_read(cast(Any, child))
    child.is_amid_message = True
    await child.resumed.wait()
    assert child.events == ["pause", "read", "resume"]


async def test_the_pipe_of_a_child_that_died_does_not_stay_paused() -> None:
    child, end_batches = FakeChild(later(), reads=99), EndBatches()
    end_batches.has_read(cast(Any, child))
    child.is_alive = False
    await child.resumed.wait()
    assert child.events == ["pause", "read", "resume"]
