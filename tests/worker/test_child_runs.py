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
from docket.child.shared_words import SharedWords, new_memory
from docket.child.tickets import TicketReader, Tickets
from docket.dependencies import Process
from docket.worker.child_calls import ChildCall
from docket.worker.child_channel import ChildChannel
from docket.worker.child_runs import ChildRuns


class Pair:
    """The runs of a child, as the worker has them, and the child's ends."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        memory = new_memory()
        self.words = SharedWords(memory)
        os.close(memory)
        self._tickets = Tickets()
        self.tickets = TicketReader(self._tickets.reading)
        self.broken: list[Exception] = []
        self.ended: list[tuple[bool, list[ChildCall]]] = []
        self._channel = ChildChannel(ours, self._received, self.broken.append)
        self.runs = ChildRuns(self._channel, self._tickets, self.words, self._run_ended)
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
        found: list[tuple[int, bool, str]] = []
        while True:
            try:
                data = self._theirs.recv(1 << 16)
            except BlockingIOError:
                return found
            found += [(m[1], m[2], RunRequest.of(m[3]).key) for m in self._reader.feed(data)]

    def begin(self, call: ChildCall) -> bool:
        """What the child does when it comes to a run that was sent ahead."""
        if not self.tickets.take(call.number):
            return False
        self.words.begin(call.number)
        return True

    def done(self, number: int, **fields: Any) -> None:
        self._theirs.sendall(frame(MessageKind.DONE, number, RunResult(**fields).as_fields()))

    def close(self) -> None:
        self._channel.close()
        self._tickets.close()
        self.words.close()
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
    pair.words.begin(1)
    assert pair.runs.leave() == (first, True, [second, third])


async def test_a_child_that_dies_after_the_end_of_a_run_has_not_lost_that_run(pair: Pair) -> None:
    first, second, third = pair.send("first"), pair.send("second"), pair.send("third")
    pair.words.begin(1)
    pair.done(1)
    assert pair.begin(second)
    assert pair.runs.leave() == (second, True, [third])
    assert first.result.done()


async def test_a_child_that_dies_with_the_ticket_has_not_begun_the_run(pair: Pair) -> None:
    first, second = pair.send("first"), pair.send("second")
    pair.words.begin(1)
    pair.done(1)
    assert pair.tickets.take(second.number)
    assert pair.runs.leave() == (second, False, [])
    assert first.result.done()


async def test_what_was_sent_ahead_is_taken_back_from_a_child_that_is_worn_out(pair: Pair) -> None:
    first = pair.send("first", Process(memory=100 << 20))
    second = pair.send("second")
    pair.done(1, memory=90 << 20)
    await first.result
    assert pair.ended == [(True, [second])]
    assert not second.has_begun


async def test_nothing_is_sent_behind_the_last_run_of_a_child(pair: Pair) -> None:
    pair.send("first", Process(recycle=2))
    assert pair.runs.has_room()
    pair.send("second", Process(recycle=2))
    assert not pair.runs.has_room()


async def test_large_messages_travel_while_the_child_does_not_read(pair: Pair) -> None:
    pair.send("first")
    second = pair.send("x" * 5_000_000)
    found: list[tuple[int, bool, str]] = []
    while len(found) < 2:
        found += pair.requests()
        await asyncio.sleep(0)
    assert found[1] == (2, True, second.function_name)
    assert pair.broken == []
