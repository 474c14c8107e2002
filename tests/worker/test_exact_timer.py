"""The timer of the stager."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time

import pytest

from docket.worker.fleet.stager import ExactTimer

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has such timers")


async def test_it_rings_once_and_not_too_early() -> None:
    rung: asyncio.Queue[float] = asyncio.Queue()
    timer = ExactTimer(lambda: rung.put_nowait(time.monotonic()))
    timer.open()
    for seconds in (0.0, 0.0005, 0.02, 0.1):
        began = time.monotonic()
        assert timer.set(seconds)
        assert await asyncio.wait_for(rung.get(), 30) >= began + seconds
    await asyncio.sleep(0.05)
    assert rung.empty()
    timer.close()


async def test_a_timer_that_is_set_again_or_stopped_forgets_its_time() -> None:
    rung: asyncio.Queue[float] = asyncio.Queue()
    timer = ExactTimer(lambda: rung.put_nowait(time.monotonic()))
    timer.open()
    timer.set(0.05)
    began = time.monotonic()
    timer.set(0.2)
    assert await asyncio.wait_for(rung.get(), 30) >= began + 0.2
    timer.set(0.01)
    timer.stop()
    # It rings while the event loop is busy, and is stopped before the loop sees it.
    timer.set(0.001)
    time.sleep(0.01)
    timer.stop()
    await asyncio.sleep(0.05)
    assert rung.empty()
    timer.close()


async def test_without_a_timer_it_says_so() -> None:
    timer = ExactTimer(lambda: None)
    assert not timer.set(0.01)
    timer.stop()
    timer.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("error", [NotImplementedError, RuntimeError])
async def test_an_event_loop_that_watches_no_files_has_no_timer_and_leaks_none(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    before = open_files()
    timer = ExactTimer(lambda: None)
    timer.open()
    assert not timer.set(0.01)
    timer.close()
    assert open_files() == before


def test_a_timer_whose_event_loop_was_closed_leaks_no_file() -> None:
    async def begin() -> list[ExactTimer]:
        timers = [ExactTimer(lambda: None) for _ in range(3)]
        for timer in timers:
            timer.open()
            timer.set(100.0)
        return timers

    before = open_files()
    timers = asyncio.run(begin())
    timers.pop().close()
    del timers
    gc.collect()
    assert open_files() == before


async def test_a_closed_timer_leaves_no_file_descriptor_and_can_be_opened_again() -> None:
    rung = asyncio.Event()
    timer = ExactTimer(rung.set)
    for _ in range(2):
        timer.open()
        timer.set(0.001)
        await asyncio.wait_for(rung.wait(), 30)
        rung.clear()
        timer.set(0.001)
        timer.close()
    await asyncio.sleep(0.02)
    assert not rung.is_set()
