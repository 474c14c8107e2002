"""Whoever can only publish makes nobody run, decode or believe anything."""

import asyncio
from typing import Any

import pytest

from docket import Docket, Execution, ExecutionCancelled, Worker
from docket.codec.proofs import new_secret, proof
from docket.storage.keys import text_bytes
from tests.running import at_work, worker_at_work
from tests.waiting import SECONDS, eventually, within

from .forgeries import delivery, finished_record, task_record
from .traps import Trap

COMPLETED = b'{"type":"state","state":"completed","worker":"w","completed_at":1}'


class Body:
    """A task that waits until the test lets it go."""

    def __init__(self) -> None:
        self.go, self.began, self.runs = asyncio.Event(), asyncio.Event(), 0

    async def work(self) -> str:
        self.runs += 1
        self.began.set()
        await asyncio.wait_for(self.go.wait(), SECONDS)
        return "genuine"


def forged_endings(key: str, trap: Trap) -> list[bytes]:
    """Every way to send an ending without the secret of the docket."""
    body = b"e" + finished_record(task_record("work", trap.pickled, generation=99), trap.pickled)
    guessed = proof(new_secret(), b"ending", text_bytes(key), body)
    return [
        COMPLETED + b"\n" + body[1:],
        COMPLETED,
        *(b"E" + tag + body for tag in (guessed, b" " * 40, b"0" * 40, b"")),
        b"E" + guessed + b"e",
    ]


ODD_EVENTS = [
    b"",
    b"E",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{",
    b'{"type":"state"}',
    b'{"type":"state","state":"gone"}',
    b'{"type":"state","state":["completed"]}',
    b'{"type":"state","state":"running","started_at":1e300}',
    b'{"type":"state","state":"running","worker":{"a":1}}',
    b'{"type":"progress"}',
    b'{"type":"progress","current":"many","total":[],"message":7,"updated_at":"now"}',
    b'{"type":"progress","current":NaN,"updated_at":-1e400}',
    b"{" * 10_000,
    b"x" * 100_000,
]


async def publish_all(publisher: Any, channel: bytes, messages: list[bytes]) -> None:
    for message in messages:
        await publisher.publish(channel, message)


async def test_a_forged_ending_is_neither_decoded_nor_believed(
    docket: Docket, publisher: Any, trap: Trap, caplog: pytest.LogCaptureFixture
) -> None:
    body = Body()
    async with worker_at_work(docket):
        execution = await docket.add(body.work, key="k")()
        result = asyncio.create_task(execution.get_result())
        await eventually(lambda: _listens(docket, "k"), "somebody waits for the task")
        await publish_all(publisher, docket.keys.task_channel("k"), forged_endings("k", trap) + ODD_EVENTS)
        await eventually(lambda: "were ignored" in caplog.text, "the waiter has ignored a message")
        body.go.set()
        assert await within(result) == "genuine"
    assert not trap.sprang
    assert caplog.text.count("were ignored") == 1


async def test_a_forged_ending_ends_no_subscription(docket: Docket, publisher: Any, trap: Trap) -> None:
    body = Body()
    states: list[str] = []
    async with worker_at_work(docket):
        execution = await docket.add(body.work, key="k")()
        await within(body.began.wait())
        ready = asyncio.Event()

        async def watch() -> None:
            async for event in execution.subscribe(ready):
                if event["type"] == "state":
                    states.append(event["state"].value)

        watching = asyncio.create_task(watch())
        await within(ready.wait())
        await publish_all(publisher, docket.keys.task_channel("k"), forged_endings("k", trap) + ODD_EVENTS)
        body.go.set()
        await within(watching)
    assert states.count("completed") == 1
    assert states[-1] == "completed"
    assert not trap.sprang


async def test_a_waiter_without_a_valid_secret_asks_the_server(docket: Docket) -> None:
    """The secret was lost, or replaced, while the caller waits."""
    for secret in (None, new_secret(), b"odd"):
        body = Body()
        async with worker_at_work(docket):
            execution = await docket.add(body.work)()
            result = asyncio.create_task(execution.get_result())
            await eventually(lambda: _listens(docket, execution.key), "somebody waits for the task")  # noqa: B023
            await within(body.began.wait())
            if secret is None:
                await docket.server.client.delete(docket.key("secret"))
            else:
                await docket.server.client.set(docket.key("secret"), secret)
            body.go.set()
            assert await within(result) == "genuine"


async def test_a_forged_delivery_starts_nothing(
    docket: Docket, worker: Worker, publisher: Any, trap: Trap, caplog: pytest.LogCaptureFixture
) -> None:
    """The publisher knows the worker's id and every format, but not the secret of its offer."""
    body = Body()
    docket.register(body.work)
    async with at_work(worker):
        fetcher = worker.staff.fetcher
        await eventually(lambda: fetcher.has_offer, "the worker offers a slot")
        now = docket.server.clock.now().timestamp() * 1000
        message = delivery("forged", task_record("work", trap.pickled), 10**15, now)
        channel = docket.keys.delivery_channel(worker.id)
        odd = [b"", b"\xff", b"x" * 15, b"x" * 16, b"x" * 16 + b"\xc1", b"x" * 100_000]
        await publish_all(publisher, channel, [message, b"0" * 16 + message, *odd])
        await eventually(lambda: "were ignored" in caplog.text, "the worker has ignored a message")
        body.go.set()
        assert await within((await docket.add(body.work)()).get_result()) == "genuine"
        assert body.runs == 1
    assert not trap.sprang
    assert caplog.text.count("were ignored") == 1


async def test_a_delivery_that_was_heard_cannot_be_sent_again(docket: Docket, worker: Worker, trap: Trap) -> None:
    """A listener hears the secret with the delivery. It is spent by then."""
    heard: list[bytes] = []
    docket.register(Body().work)
    async with at_work(worker):
        fetcher = worker.staff.fetcher
        await eventually(lambda: fetcher.has_offer, "the worker offers a slot")
        channel = docket.keys.delivery_channel(worker.id)
        await docket.subscriptions.listen(channel, heard.append)
        await (await docket.add("trace")("first")).get_result()
        await eventually(lambda: heard, "the delivery was published")
        await eventually(lambda: fetcher.has_offer, "the worker offers a slot again")
        now = docket.server.clock.now().timestamp() * 1000
        forged = heard[0][:16] + delivery("forged", task_record("work", trap.pickled), 10**15, now)
        await docket.server.client.publish(channel, heard[0])
        await docket.server.client.publish(channel, forged)
        await eventually(lambda: len(heard) >= 3, "the messages have come")
        assert await within((await docket.add("trace")("last")).get_result()) is None
    assert not trap.sprang


async def test_a_forged_cancel_request_cancels_nothing(
    docket: Docket, worker: Worker, publisher: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = Body()
    async with at_work(worker):
        execution = await docket.add(body.work, key="k")()
        await within(body.began.wait())
        status = await docket.ledger.tasks.get("k")
        assert status.run is not None
        request = f"{status.run.epoch} k".encode()
        guessed = proof(new_secret(), b"cancel", worker.id.encode(), request)
        channel = docket.keys.worker_channel(worker.id)
        odd = [b"", b"C", b"F", b"function x", b"\xff" * 50, b"C" + b" " * 40 + b"x", request, b"C" + guessed + request]
        await publish_all(publisher, channel, [*odd, b"F" + guessed + b"trace"])
        await eventually(lambda: "were ignored" in caplog.text, "the worker has ignored a message")
        body.go.set()
        assert await within(execution.get_result()) == "genuine"


async def test_a_genuine_cancel_request_works_without_the_secret(docket: Docket, worker: Worker) -> None:
    body = Body()
    async with at_work(worker):
        execution = await docket.add(body.work, key="k")()
        await within(body.began.wait())
        await docket.server.client.set(docket.key("secret"), new_secret())
        await docket.cancel("k")
        with pytest.raises(ExecutionCancelled):
            await within(execution.get_result())


async def test_odd_wake_ups_stop_no_stager(docket: Docket, worker: Worker, publisher: Any) -> None:
    async with at_work(worker):
        await publish_all(publisher, docket.keys.wake_channel, [b"", b"\xff", b"never", b"-1", b"1e400", b"nan"])
        execution: Execution[Any] = await docket.add("trace")("x")
        await within(execution.get_result())


async def test_scripts_and_python_prove_alike(docket: Docket) -> None:
    """Any key and any body: the waiter's proof is the script's."""
    for key in ("k", "", "ключ", "a b c", "\ud800", "x" * 500, "1 k"):
        async with worker_at_work(docket):
            body, messages = Body(), list[bytes]()
            execution = await docket.add(body.work, key=key)()
            await docket.subscriptions.listen(docket.keys.task_channel(key), messages.append)
            body.go.set()
            await within(execution.get_result())
            ending = await eventually(lambda: [m for m in messages if m.startswith(b"E")], "the ending")  # noqa: B023
        secret = await docket.server.client.get(docket.key("secret"))
        assert ending[0][1:41] == proof(secret, b"ending", text_bytes(key), ending[0][41:])


async def _listens(docket: Docket, key: str) -> bool:
    (_, listeners), *_ = await docket.server.client.pubsub_numsub(docket.keys.task_channel(key))
    return bool(listeners)
