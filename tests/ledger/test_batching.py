"""Calls made at one time share a round trip, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from docket.ledger import Batcher
from docket.ledger.calls import BATCH_BYTES
from docket.storage.client.faults import ServerSilent


class Line:
    """Takes batches and answers when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def send(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        await self.may_answer.wait()
        if 11 in items:
            raise ServerSilent("no answer in time")
        if 13 in items:
            raise ConnectionResetError("the line broke")
        return [ValueError(f"{item} is odd") if item % 2 else item * 10 for item in items]

    def batcher(self, *, most: int = 100, in_flight: int = 1, weight: int = 1) -> Batcher[int, int]:
        return Batcher(self.send, most=most, weigh=lambda _: weight, in_flight=in_flight, name="line")


async def test_what_is_submitted_in_one_tick_goes_out_together() -> None:
    line = Line()
    batcher = line.batcher()
    assert await asyncio.gather(*(batcher.submit(n) for n in (2, 4, 6))) == [20, 40, 60]
    assert line.batches == [[2, 4, 6]]


async def test_what_comes_while_the_line_is_busy_makes_the_next_batches_none_too_large() -> None:
    line = Line()
    batcher = line.batcher(most=3)
    line.may_answer.clear()
    futures = [batcher.submit(0)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    futures += [batcher.submit(n) for n in range(2, 18, 2)]
    line.may_answer.set()
    assert await asyncio.gather(*futures) == [n * 10 for n in range(0, 18, 2)]
    assert line.batches == [[0], [2, 4, 6], [8, 10, 12], [14, 16]]


async def test_a_batch_closes_at_so_many_bytes_and_takes_one_item_at_least() -> None:
    for weight, batches in ((BATCH_BYTES // 2, [[0], [2, 4], [6, 8]]), (BATCH_BYTES * 2, [[0], [2], [4], [6], [8]])):
        line = Line()
        batcher = line.batcher(weight=weight)
        line.may_answer.clear()
        futures = [batcher.submit(0)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        futures += [batcher.submit(n) for n in (2, 4, 6, 8)]
        line.may_answer.set()
        assert await asyncio.gather(*futures) == [0, 20, 40, 60, 80]
        assert line.batches == batches


async def test_no_more_batches_are_under_way_than_allowed() -> None:
    line = Line()
    batcher = line.batcher(most=1, in_flight=2)
    line.may_answer.clear()
    futures = [batcher.submit(n) for n in (0, 2, 4, 6)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert line.batches == [[0], [2]]
    line.may_answer.set()
    await asyncio.gather(*futures)
    assert line.batches == [[0], [2], [4], [6]]


async def test_one_that_is_refused_does_not_spoil_the_others() -> None:
    batcher = Line().batcher()
    good, bad = batcher.submit(2), batcher.submit(3)
    assert await good == 20
    with pytest.raises(ValueError, match="3 is odd"):
        await bad


async def test_a_broken_line_is_told_to_all_who_were_in_the_batch_and_to_nobody_else() -> None:
    line = Line()
    batcher = line.batcher(most=2)
    futures = [batcher.submit(n) for n in (12, 13, 14)]
    for future in futures[:2]:
        with pytest.raises(ConnectionResetError):
            await future
    assert await futures[2] == 140


async def test_a_server_that_does_not_answer_in_time_fails_those_who_wait_too() -> None:
    line = Line()
    batcher = line.batcher(most=1)
    line.may_answer.clear()
    futures = [asyncio.ensure_future(batcher.call(n)) for n in (11, 2, 4)]
    await asyncio.sleep(0)
    line.may_answer.set()
    for future in futures:
        with pytest.raises(ServerSilent):
            await future
    assert line.batches == [[11]]
    assert await batcher.call(2) == 20, "the next one is a new attempt"
    futures = [batcher.submit(n) for n in (11, 4)]
    for future in futures:
        with pytest.raises(ServerSilent):
            await future
    assert line.batches == [[11], [2], [11]]
    await batcher.flush()


async def test_a_caller_that_gave_up_harms_nobody() -> None:
    line = Line()
    batcher = line.batcher()
    line.may_answer.clear()
    futures = [batcher.submit(n) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    futures[0].cancel()
    futures[1].cancel()
    line.may_answer.set()
    assert await futures[2] == 40


async def test_flush_returns_when_all_have_their_answer() -> None:
    line = Line()
    batcher = line.batcher(most=1)
    futures = [batcher.submit(n) for n in (2, 4, 6)]
    await batcher.flush()
    assert [future.result() for future in futures] == [20, 40, 60]
    await batcher.flush()


async def test_a_call_on_an_idle_line_goes_out_at_once_and_what_follows_gathers_behind_it() -> None:
    line = Line()
    batcher = line.batcher()
    line.may_answer.clear()
    calls = [asyncio.create_task(batcher.call(n)) for n in (2, 4, 6)]
    await asyncio.sleep(0)
    assert line.batches == [[2]]
    line.may_answer.set()
    assert await asyncio.gather(*calls) == [20, 40, 60]
    assert line.batches == [[2], [4, 6]]


async def test_a_call_that_is_refused_or_broken_raises_and_the_next_one_works() -> None:
    batcher = Line().batcher()
    with pytest.raises(ValueError, match="3 is odd"):
        await batcher.call(3)
    with pytest.raises(ConnectionResetError):
        await batcher.call(13)
    assert await batcher.call(2) == 20


async def test_a_cancelled_call_holds_up_nobody_and_flush_waits_for_calls() -> None:
    line = Line()
    batcher = line.batcher()
    line.may_answer.clear()
    given_up, patient = asyncio.create_task(batcher.call(2)), asyncio.create_task(batcher.call(4))
    await asyncio.sleep(0)
    given_up.cancel()
    flushing = asyncio.create_task(batcher.flush())
    await asyncio.sleep(0)
    assert not flushing.done()
    line.may_answer.set()
    await flushing
    assert patient.result() == 40
