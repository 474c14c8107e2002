"""The races between a worker and its child about a run that was sent ahead. The test itself plays
the child, so that it decides what comes first."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from docket.child.messages import FrameReader, MessageKind, RunRequest, RunResult, frame
from docket.child.shared_counters import SharedCounters, new_memory
from docket.child.tickets import TicketReader, Tickets
from docket.dependencies import Process
from docket.worker.children.child_channel import ChildChannel
from docket.worker.children.child_runs import ChildCall, ChildRuns
from tests.waiting import WAIT_LIMIT


class Pair:
    """The runs of a child, as the worker has them, and the child's ends."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        memory = new_memory()
        self.counters = SharedCounters(memory)
        os.close(memory)
        self.issued = Tickets()
        self.tickets = TicketReader(os.dup(self.issued.reading))
        self.broken: list[Exception] = []
        self.ended: list[tuple[bool, list[ChildCall]]] = []
        self.channel = ChildChannel(ours, self._received, self.broken.append)
        self.runs = ChildRuns(self.channel, self.issued, self.counters, self._run_ended)
        self._reader = FrameReader()

    def _received(self, message: list[Any]) -> None:
        kind, number, *fields = message
        self.runs.received(MessageKind(kind), number, fields)

    def _run_ended(self, is_worn_out: bool, taken: list[ChildCall]) -> None:
        self.ended.append((is_worn_out, taken))

    def send(self, name: str, process: Process | None = None) -> ChildCall:
        request = RunRequest("m", "f", name, name, 1, b"", 0.0, 0.0, 1, 0, False, None, None)
        call = ChildCall(name, process or Process(), lambda: request, lambda kind, fields: None)
        self.runs.send(call)
        return call

    def requests(self) -> list[tuple[int, bool, str]]:
        """What the child finds in its pipe: number, whether it was sent ahead, name."""
        self.channel.flush()
        return self.found_in(self.arrived())

    def arrived(self) -> bytes:
        data = b""
        while True:
            try:
                data += self._theirs.recv(1 << 16)
            except BlockingIOError:
                return data

    def found_in(self, data: bytes) -> list[tuple[int, bool, str]]:
        return [(m[1], m[2], RunRequest.of(m[3]).key) for m in self._reader.feed(data)]

    def begin(self, call: ChildCall) -> bool:
        """What the child does when it comes to a run that was sent ahead."""
        if not self.tickets.take(call.number):
            return False
        self.counters.begin(call.number)
        return True

    def done(self, number: int, **fields: Any) -> None:
        self._theirs.sendall(frame(MessageKind.DONE, number, RunResult(**fields).as_fields()))

    def close(self) -> None:
        self.channel.close()
        self.issued.close()
        self.tickets.let_go()
        self.counters.close()
        self._theirs.close()


@pytest.fixture
async def pair() -> AsyncGenerator[Pair]:
    made = Pair()
    yield made
    made.close()


async def test_a_run_is_sent_ahead_behind_the_present_one(pair: Pair) -> None:
    first, second = pair.send("first"), pair.send("second")
    assert pair.requests() == [(1, False, "first"), (2, True, "second")]
    assert (first.has_begun, second.has_begun) == (True, False)
    pair.done(1)
    await first.result
    assert second.has_begun
    assert pair.begin(second)


async def test_the_worker_takes_back_what_the_child_has_not_begun(pair: Pair) -> None:
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    assert pair.runs.take_back() == [second, third]
    assert pair.runs.present is first
    assert not pair.begin(second)
    assert not pair.begin(third)


async def test_the_run_that_the_child_has_begun_cannot_be_taken_back_and_is_the_present_one(pair: Pair) -> None:
    """The end of the first is on its way: nobody has read it."""
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    pair.done(1)
    assert pair.begin(second)
    assert pair.runs.take_back() == [third]
    assert first.result.done()
    assert pair.runs.present is second
    assert second.has_begun


async def test_the_present_run_stays_present_though_the_child_has_not_come_to_it(pair: Pair) -> None:
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    pair.done(1)
    await first.result
    number = second.number
    assert pair.runs.take_back() == [third]
    assert pair.runs.present is second
    # It was sent again, and needs no ticket now. The child skips what was sent before.
    assert pair.requests()[-1] == (second.number, False, "second")
    assert second.number > number
    assert not pair.tickets.take(number)
    pair.done(second.number)
    await second.result


async def test_a_ticket_of_a_later_run_is_kept_for_that_run(pair: Pair) -> None:
    pair.send("first")
    second = pair.send("second")
    assert pair.runs.take_back() == [second]
    number = second.number
    third = pair.send("third")
    assert not pair.tickets.take(number)
    assert pair.runs.take_back() == []
    assert pair.begin(third)


async def test_a_run_may_come_back_to_the_same_child(pair: Pair) -> None:
    first, second = pair.send("first"), pair.send("second")
    number = second.number
    assert pair.runs.take_back() == [second]
    pair.runs.send(second)
    assert not pair.tickets.take(number)
    pair.done(first.number)
    assert pair.begin(second)
    assert not pair.runs.is_sent(number)


async def test_a_child_that_dies_leaves_what_it_had_not_begun(pair: Pair) -> None:
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    pair.counters.begin(1)
    assert pair.runs.leave() == (first, True, [second, third])


async def test_a_child_that_dies_after_the_end_of_a_run_has_not_lost_that_run(pair: Pair) -> None:
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    pair.counters.begin(1)
    pair.done(1)
    assert pair.begin(second)
    assert pair.runs.leave() == (second, True, [third])
    assert first.result.done()


async def test_a_child_that_dies_with_the_ticket_has_not_begun_the_run(pair: Pair) -> None:
    first, second = pair.send("first"), pair.send("second")
    pair.counters.begin(1)
    pair.done(1)
    assert pair.tickets.take(second.number)
    assert pair.runs.leave() == (second, False, [])
    assert first.result.done()


async def test_the_worker_does_not_wait_for_tickets_if_the_function_has_made_the_descriptor_blocking(
    pair: Pair,
) -> None:
    """The flag belongs to the open file, which both processes share."""
    os.set_blocking(pair.issued.reading, True)
    taking = asyncio.get_running_loop().run_in_executor(None, pair.issued.take_back)
    try:
        assert await asyncio.wait_for(asyncio.shield(taking), WAIT_LIMIT.total_seconds()) == set()
    finally:
        # Lets the thread go.
        pair.issued.issue(1)
        await taking


async def test_what_was_sent_ahead_is_taken_back_from_a_child_that_is_worn_out(pair: Pair) -> None:
    first = pair.send("first", Process(memory=100 << 20))
    second = pair.send("second")
    pair.done(1, memory=90 << 20)
    await first.result
    assert pair.ended == [(True, [second])]
    assert not second.has_begun


async def test_nothing_is_sent_behind_the_last_run_of_a_child(pair: Pair) -> None:
    pair.send("first", Process(recycle=2))
    assert pair.runs.has_room(asyncio.get_running_loop().time())
    pair.send("second", Process(recycle=2))
    assert not pair.runs.has_room(asyncio.get_running_loop().time())


async def test_large_messages_travel_while_the_child_does_not_read(pair: Pair) -> None:
    pair.send("first")
    second = pair.send("x" * 5_000_000)
    found: list[tuple[int, bool, str]] = []
    while len(found) < 2:
        found += pair.requests()
        await asyncio.sleep(0)
    assert found[1] == (2, True, second.function_name)
    assert pair.broken == []


def room_behind(pair: Pair, present: ChildCall) -> int:
    """How many runs can be sent ahead."""
    now = asyncio.get_running_loop().time()
    pair.runs.began_at = now
    while pair.runs.has_room(now):
        pair.send("ahead")
    assert pair.runs.present is present
    return len(pair.runs) - 1


@pytest.mark.parametrize(("seconds", "room"), [(0.0001, 15), (0.004, 5), (0.5, 2)])
async def test_as_many_short_runs_are_sent_ahead_as_last_for_20_milliseconds(
    pair: Pair, seconds: float, room: int
) -> None:
    first = pair.send("first")
    pair.done(first.number, seconds=seconds)
    await first.result
    assert room_behind(pair, pair.send("second")) == room


async def test_a_child_that_has_ended_no_run_gets_two_ahead(pair: Pair) -> None:
    assert room_behind(pair, pair.send("first")) == 2


async def test_one_long_run_counts_at_once(pair: Pair) -> None:
    for seconds in (0.001, 0.3):
        call = pair.send("short, then long")
        pair.done(call.number, seconds=seconds)
        await call.result
    assert room_behind(pair, pair.send("next")) == 2


async def test_runs_of_one_turn_of_the_event_loop_travel_in_one_write(pair: Pair) -> None:
    for name in ("first", "second", "third"):
        pair.send(name)
    assert pair.arrived() == b""
    await asyncio.sleep(0)
    assert [name for _, _, name in pair.found_in(pair.arrived())] == ["first", "second", "third"]


async def test_a_paused_pipe_is_read_on_demand_and_after_the_pause(pair: Pair) -> None:
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    pair.channel.pause()
    pair.done(first.number)
    assert pair.begin(second)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not first.result.done()
    assert pair.runs.take_back() == [third]
    assert first.result.done()
    pair.done(second.number)
    pair.channel.resume()
    await second.result
