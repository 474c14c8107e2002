"""What is published about a task reaches whoever listens to that key, and can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from docket.codec.proofs import proven_body
from docket.ledger import ProgressChange, requeue, reschedule
from docket.ledger.endings import Ending, ending_event, read_ending
from docket.ledger.fleet import as_json
from docket.model.states import ExecutionState
from docket.storage.server import Server
from tests.waiting import SECONDS

from .hostile import hostile_keys
from .ledger_client import LedgerClient, completed, ended, new_ledger

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
            assert self._pubsub.get_message(timeout=SECONDS) is not None

    def heard(self) -> list[tuple[bytes, bytes]]:
        self._client.publish(self.END, b"")
        messages: list[tuple[bytes, bytes]] = []
        while True:
            message = self._pubsub.get_message(timeout=SECONDS)
            assert message is not None, "the last message never came"
            if message["channel"] == self.END:
                return messages
            data: bytes = message["data"]
            # An ending with its record follows the event, for those who wait for it.
            if not data.startswith(b"E"):
                messages.append((message["channel"], data))

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


async def test_every_event_of_every_key_parses_and_goes_to_that_key(
    ledger_client: LedgerClient, listener: Listener
) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*KEYS, due_ms=ledger_client.later())
    ledger_client.fall_due(*KEYS)
    await ledger_client.ledger.tasks.stage()
    runs = await ledger_client.take(worker, 500)
    for run in runs:
        await ledger_client.ledger.tasks.progress([ProgressChange(run.key, run.epoch, message='"half"')])
    await ledger_client.settle(*(completed(run) for run in runs))

    heard = listener.heard()
    expected = ["scheduled", "queued", "running", "progress", "completed"]
    channels = {ledger_client.ledger.keys.task_channel(key) for key in KEYS}
    for channel in channels:
        assert states_of(heard, channel) == expected
    others = {channel for channel, _ in heard} - channels
    assert others <= {ledger_client.ledger.keys.wake_channel}


async def test_a_cancelled_a_lost_and_a_retried_task_are_told_of(
    ledger_client: LedgerClient, listener: Listener
) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("cancelled", "retried", "requeued", "lost")
    await ledger_client.ledger.tasks.cancel("cancelled")
    retried, back, _ = await ledger_client.take(worker)
    await ledger_client.settle(reschedule(retried.key, retried.epoch, attempt=2, delay_ms=60_000))
    await ledger_client.settle(requeue(back.key, back.epoch))
    for _ in range(3):
        ledger_client.bury(worker)
        worker = await ledger_client.hire()
        # A task that is lost beside others is not to blame.
        await ledger_client.settle(*(completed(run) for run in await ledger_client.take(worker) if run.key != "lost"))

    heard = listener.heard()
    task_channel = ledger_client.ledger.keys.task_channel
    assert states_of(heard, task_channel("cancelled")) == ["queued", "cancelled"]
    assert states_of(heard, task_channel("retried")) == ["queued", "running", "scheduled"]
    assert states_of(heard, task_channel("lost")) == ["queued", "running"] * 3 + ["failed"]
    (last,) = [json.loads(d) for c, d in heard if c == task_channel("lost")][-1:]
    assert "WorkerLost" in last["error"]


async def test_a_parked_task_is_queued_again_for_those_who_watch(
    ledger_client: LedgerClient, listener: Listener
) -> None:
    worker = await ledger_client.hire()
    first, second = await ledger_client.start(worker, "first"), await ledger_client.start(worker, "second")
    await ledger_client.acquire(first.key, first.epoch, [("L", 1)])
    await ledger_client.acquire(second.key, second.epoch, [("L", 1)])
    heard = listener.heard()
    assert states_of(heard, ledger_client.ledger.keys.task_channel("second")) == ["queued", "running", "queued"]


async def test_a_request_to_cancel_goes_to_the_worker_that_runs_the_task(
    ledger_client: LedgerClient, listener: Listener
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    runs = [await ledger_client.start(worker, key) for key in KEYS[:20]]
    for run in runs:
        await ledger_client.ledger.tasks.cancel(run.key)
    heard = listener.heard()
    requests = [data for channel, data in heard if channel == ledger_client.ledger.keys.worker_channel(worker)]
    secret = ledger_client.client.get(ledger_client.ledger.keys.key("secret"))
    assert [proven_body(secret, b"C", b"cancel", worker.encode(), request) for request in requests] == [
        str(r.epoch).encode() + b" " + r.key.encode("utf-8", "surrogatepass") for r in runs
    ]
    assert not [data for channel, data in heard if channel == ledger_client.ledger.keys.worker_channel(other)]


async def test_an_earlier_due_time_wakes_the_stagers_and_a_later_one_does_not(
    ledger_client: LedgerClient, listener: Listener
) -> None:
    due = ledger_client.later()
    await ledger_client.add("first", due_ms=due)
    await ledger_client.add("later", due_ms=due + 1000)
    await ledger_client.add("earlier", due_ms=due - 1000)
    wakes = [float(data) for channel, data in listener.heard() if channel == ledger_client.ledger.keys.wake_channel]
    assert wakes == [pytest.approx(due, abs=1), pytest.approx(due - 1000, abs=1)]


async def test_a_listener_of_one_docket_hears_nothing_of_another(
    server: Server, blocking: Any, listener: Listener
) -> None:
    desks = {name: LedgerClient(new_ledger(server, name), blocking) for name in ("a", "a/task/", "1:a", "a:b", "")}
    for ledger_client in desks.values():
        await ledger_client.add("x")
    channels = [channel for channel, _ in listener.heard()]
    assert sorted(channels) == sorted(ledger_client.ledger.keys.task_channel("x") for ledger_client in desks.values())


@pytest.mark.parametrize("text", ['"', "\\", "\0", "\n", "\ud800", "é" * 5000, '","state":"completed'])
async def test_errors_and_worker_names_cannot_break_an_event(
    ledger_client: LedgerClient, listener: Listener, text: str
) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("x")
    (run,) = await ledger_client.ledger.deliveries.take(worker, as_json(text), 1) or []
    event = ending_event(ExecutionState.FAILED, as_json(text), 0, text)
    tail = Ending(text, text).pack()
    settlement = ended(run, ExecutionState.FAILED)
    settlement.row = settlement.row._replace(tail=tail, event=event)
    await ledger_client.settle(settlement)

    _, running, failed = [json.loads(data) for _, data in listener.heard()]
    assert running["worker"] == failed["worker"] == text
    assert failed["state"] == "failed"
    assert len(failed["error"]) <= 4001
    look = await ledger_client.ledger.tasks.get("x")
    assert look.finished is not None
    assert read_ending(look.finished.tail).worker == text
