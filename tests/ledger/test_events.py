"""What is published about a task reaches whoever listens to that key, and can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from docket.ledger import ProgressChange, hand_back, reschedule
from docket.ledger.endings import Ending, ending_event, read_ending
from docket.ledger.workers import as_json
from docket.model.states import ExecutionState
from docket.storage.server import Server

from .desk import Desk, completed, ended, new_ledger
from .hostile import hostile_keys

KEYS = hostile_keys()


class Listener:
    """Hears everything on this database's channels; a message of its own tells where to stop."""

    END = b"docket/end of the test"

    def __init__(self, client: redis.Redis, database: int) -> None:
        self._client = client
        self._database = database
        self._pubsub = client.pubsub()
        self._pubsub.psubscribe(f"docket/{database}/*")
        self._pubsub.subscribe(self.END)
        for _ in range(2):
            assert self._pubsub.get_message(timeout=5) is not None

    def heard(self) -> list[tuple[bytes, bytes]]:
        self._client.publish(self.END, b"")
        messages: list[tuple[bytes, bytes]] = []
        while True:
            message = self._pubsub.get_message(timeout=5)
            assert message is not None, "the last message never came"
            if message["channel"] == self.END:
                return messages
            data: bytes = message["data"]
            # What follows an event is the finished record, for those who wait for it.
            messages.append((message["channel"], data.partition(b"\n")[0] if data.startswith(b"{") else data))

    def close(self) -> None:
        self._pubsub.close()


@pytest.fixture
def listener(server: Server, blocking: Any) -> Iterator[Listener]:
    listener = Listener(blocking, server.database)
    yield listener
    listener.close()


def _what(event: dict[str, str]) -> str:
    return event["state"] if event["type"] == "state" else event["type"]


def states_of(messages: list[tuple[bytes, bytes]], channel: bytes) -> list[str]:
    return [_what(json.loads(data)) for heard_on, data in messages if heard_on == channel]


async def test_every_event_of_every_key_parses_and_goes_to_that_key(desk: Desk, listener: Listener) -> None:
    worker = await desk.hire()
    await desk.add(*KEYS, due_ms=desk.later())
    desk.fall_due(*KEYS)
    await desk.ledger.stage()
    runs = await desk.take(worker, 500)
    for run in runs:
        await desk.ledger.progress([ProgressChange(run.key, run.epoch, message='"half"')])
    await desk.settle(*(completed(run) for run in runs))

    heard = listener.heard()
    expected = ["scheduled", "queued", "running", "progress", "completed"]
    channels = {desk.ledger.keys.task_channel(key) for key in KEYS}
    for channel in channels:
        assert states_of(heard, channel) == expected
    others = {channel for channel, _ in heard} - channels
    assert others <= {desk.ledger.keys.wake_channel}


async def test_a_cancelled_a_lost_and_a_retried_task_are_told_of(desk: Desk, listener: Listener) -> None:
    worker = await desk.hire()
    await desk.add("cancelled", "retried", "handed back", "lost")
    await desk.ledger.cancel("cancelled")
    retried, back, _ = await desk.take(worker)
    await desk.settle(reschedule(retried.key, retried.epoch, attempt=2, delay_ms=60_000))
    await desk.settle(hand_back(back.key, back.epoch))
    for _ in range(3):
        desk.bury(worker)
        worker = await desk.hire()
        # A task that is lost beside others is not to blame.
        await desk.settle(*(completed(run) for run in await desk.take(worker) if run.key != "lost"))

    heard = listener.heard()
    task_channel = desk.ledger.keys.task_channel
    assert states_of(heard, task_channel("cancelled")) == ["queued", "cancelled"]
    assert states_of(heard, task_channel("retried")) == ["queued", "running", "scheduled"]
    assert states_of(heard, task_channel("lost")) == ["queued", "running"] * 3 + ["failed"]
    (last,) = [json.loads(d) for c, d in heard if c == task_channel("lost")][-1:]
    assert "WorkerLost" in last["error"]


async def test_a_parked_task_is_queued_again_for_those_who_watch(desk: Desk, listener: Listener) -> None:
    worker = await desk.hire()
    first, second = await desk.start(worker, "first"), await desk.start(worker, "second")
    await desk.acquire(first.key, first.epoch, [("L", 1)])
    await desk.acquire(second.key, second.epoch, [("L", 1)])
    heard = listener.heard()
    assert states_of(heard, desk.ledger.keys.task_channel("second")) == ["queued", "running", "queued"]


async def test_an_order_to_cancel_goes_to_the_worker_that_runs_the_task(desk: Desk, listener: Listener) -> None:
    worker, other = await desk.hire(), await desk.hire()
    runs = [await desk.start(worker, key) for key in KEYS[:20]]
    for run in runs:
        await desk.ledger.cancel(run.key)
    heard = listener.heard()
    orders = [data for channel, data in heard if channel == desk.ledger.keys.worker_channel(worker)]
    assert orders == [str(r.epoch).encode() + b" " + r.key.encode("utf-8", "surrogatepass") for r in runs]
    assert not [data for channel, data in heard if channel == desk.ledger.keys.worker_channel(other)]


async def test_an_earlier_due_time_wakes_the_stagers_and_a_later_one_does_not(desk: Desk, listener: Listener) -> None:
    due = desk.later()
    await desk.add("first", due_ms=due)
    await desk.add("later", due_ms=due + 1000)
    await desk.add("earlier", due_ms=due - 1000)
    wakes = [float(data) for channel, data in listener.heard() if channel == desk.ledger.keys.wake_channel]
    assert wakes == [pytest.approx(due, abs=1), pytest.approx(due - 1000, abs=1)]


async def test_a_listener_of_one_docket_hears_nothing_of_another(
    server: Server, blocking: Any, listener: Listener
) -> None:
    desks = {name: Desk(new_ledger(server, name), blocking) for name in ("a", "a/task/", "1:a", "a:b", "")}
    for desk in desks.values():
        await desk.add("x")
    channels = [channel for channel, _ in listener.heard()]
    assert sorted(channels) == sorted(desk.ledger.keys.task_channel("x") for desk in desks.values())


@pytest.mark.parametrize("text", ['"', "\\", "\0", "\n", "\ud800", "é" * 5000, '","state":"completed'])
async def test_errors_and_worker_names_cannot_break_an_event(desk: Desk, listener: Listener, text: str) -> None:
    worker = await desk.hire()
    await desk.add("x")
    (run,) = await desk.ledger.take(worker, as_json(text), 1) or []
    event = ending_event(ExecutionState.FAILED, as_json(text), 0, text)
    tail = Ending(text, text).pack()
    settlement = ended(run, ExecutionState.FAILED)
    settlement.item = settlement.item._replace(tail=tail, event=event)
    await desk.settle(settlement)

    _, running, failed = [json.loads(data) for _, data in listener.heard()]
    assert running["worker"] == failed["worker"] == text
    assert failed["state"] == "failed"
    assert len(failed["error"]) <= 4001
    look = await desk.ledger.get("x")
    assert look.finished is not None
    assert read_ending(look.finished.tail).worker == text
