"""Somebody who can write to the server, but has no key. With signing on, nothing that he writes is
run or decoded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, Execution, ExecutionCancelled, ExecutionState, Keyring, PayloadRefused
from docket.codec import Payloads
from docket.instrumentation import PAYLOADS_REFUSED
from docket.ledger import Ending
from docket.ledger.endings import ERROR, VALUE
from docket.storage.keys import text_bytes
from docket.storage.records import read_finished, read_task
from docket.storage.schema.records import TASK_HEADER
from tests.running import run_everything, worker_at_work
from tests.waiting import WAIT_LIMIT, eventually, within

from .traps import Trap

KEYS = Keyring({"2026": b"k" * 32})
OTHER_KEYS = Keyring({"2026": b"x" * 32})

ran: list[Any] = []


async def pay(amount: Any) -> str:
    ran.append(amount)
    return f"paid {amount}"


async def refund(amount: Any) -> str:
    ran.append(("refund", amount))
    return "refunded"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture(params=[False, True], ids=["signed", "encrypted"])
async def signed(request: pytest.FixtureRequest, name: str, url: str) -> AsyncIterator[Docket]:
    async with Docket(name, url, signing=KEYS, encrypt=request.param) as docket:
        docket.register(pay)
        docket.register(refund)
        yield docket


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Where and why payloads were refused."""
    counted: list[tuple[str, str]] = []

    def add(amount: int, labels: dict[str, str]) -> None:
        counted.append((labels["docket.where"], labels["docket.reason"]))

    monkeypatch.setattr(PAYLOADS_REFUSED, "add", add)
    return counted


async def task_record(docket: Docket, key: str) -> bytes:
    return await docket.server.client.hget(docket.keys.key("tasks"), key)


async def put_call(docket: Docket, key: str, call: bytes, function: str = "pay") -> None:
    """Overwrites the call of a waiting task."""
    record = await task_record(docket, key)
    name = function.encode()
    header = bytearray(record[: TASK_HEADER.struct.size])
    header[-2:] = len(name).to_bytes(2, "little")
    await docket.server.client.hset(docket.keys.key("tasks"), key, bytes(header) + name + call)


async def call_of(docket: Docket, key: str) -> bytes:
    return read_task(await task_record(docket, key)).call


async def assert_buried(docket: Docket, execution: Execution[Any]) -> None:
    with pytest.raises(PayloadRefused):
        await within(execution.get_result(timeout=WAIT_LIMIT))
    assert ran == []
    found = await docket.get_execution(execution.key)
    assert found is not None
    assert found.state is ExecutionState.FAILED
    assert (await docket.ledger.queries.census()).dead == 1


# Calls


def plain_pickle(trap: Trap) -> bytes:
    return b"\0\0\x01\x01\x00" + trap.pickled


def plain_json(trap: Trap) -> bytes:
    return b'\0\0\x01\x02\x00[["5"],{}]'


def signed_by_nobody(trap: Trap) -> bytes:
    return b"\0\0\x01\x01\x01\x042026" + b"\0" * 16 + trap.pickled


def encrypted_by_nobody(trap: Trap) -> bytes:
    return b"\0\0\x01\x01\x02\x042026" + b"\0" * 24 + trap.pickled


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (plain_pickle, "unsigned"),
        (plain_json, "unsigned"),
        (signed_by_nobody, "tag"),
        (encrypted_by_nobody, "tag"),
    ],
)
async def test_a_forged_call_is_buried_without_decoding(
    signed: Docket,
    trap: Trap,
    refused: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
    forge: Callable[[Trap], bytes],
    reason: str,
) -> None:
    execution = await signed.add(pay)(5)
    await put_call(signed, execution.key, forge(trap))

    with caplog.at_level(logging.ERROR):
        await run_everything(signed)
    await assert_buried(signed, execution)
    assert not trap.sprang
    assert ("call", reason) in refused
    assert "is buried" in caplog.text


async def test_a_call_of_another_keyring_does_not_run(signed: Docket, trap: Trap) -> None:
    """An attacker knows the id of the key, which is public."""
    execution = await signed.add(pay)(5)
    forger = Payloads("pickle", OTHER_KEYS, docket=signed.name)
    await put_call(signed, execution.key, forger.seal_call(execution.key, "pay", pay, (trap,), {}))

    await run_everything(signed)
    await assert_buried(signed, execution)
    assert not trap.sprang


async def test_a_call_does_not_run_under_another_key(signed: Docket) -> None:
    first, second = await signed.add(pay)(5), await signed.add(pay)(7)
    await put_call(signed, second.key, await call_of(signed, first.key))
    await signed.cancel(first.key)

    await run_everything(signed)
    await assert_buried(signed, second)


async def test_a_call_does_not_run_as_another_function(signed: Docket) -> None:
    execution = await signed.add(pay)(5)
    await put_call(signed, execution.key, await call_of(signed, execution.key), "refund")

    await run_everything(signed)
    await assert_buried(signed, execution)


async def test_a_call_of_another_docket_does_not_run(signed: Docket) -> None:
    execution = await signed.add(pay)(5)
    async with Docket(f"{signed.name}-other", signed.url, signing=KEYS) as other:
        twin = await other.add(pay, key=execution.key)(9)
        await put_call(signed, execution.key, await call_of(other, twin.key))

    await run_everything(signed)
    await assert_buried(signed, execution)


async def test_a_result_does_not_run_as_a_call(signed: Docket) -> None:
    """The result of a run is signed, and a task may choose it."""
    execution = await signed.add(pay)(5)
    sealed = signed.payloads.seal_result(execution.key, 1, ExecutionState.COMPLETED, None, ((9,), {}))
    await put_call(signed, execution.key, b"\0\0" + sealed)

    await run_everything(signed)
    await assert_buried(signed, execution)


@pytest.mark.parametrize("at", [0, 5, 20, -1])
async def test_a_changed_byte_of_the_call_or_of_its_trace_is_noticed(signed: Docket, at: int) -> None:
    execution = await signed.add(pay)(5)
    trace = {"traceparent": "00-1-2-01"}
    call = bytearray(signed.payloads.seal_call(execution.key, "pay", pay, (5,), {}, trace))
    assert signed.payloads.open_call(execution.key, "pay", pay, bytes(call)) == ((5,), {}, trace)
    call[2 + at if at >= 0 else at] ^= 1
    await put_call(signed, execution.key, bytes(call))

    await run_everything(signed)
    await assert_buried(signed, execution)


async def test_the_large_call_of_another_task_does_not_run(signed: Docket) -> None:
    first, second = await signed.add(pay)("a" * 5000), await signed.add(pay)("b" * 5000)
    record = await task_record(signed, second.key)
    reference = read_task(await task_record(signed, first.key)).call
    start = len(record) - len(reference)
    await signed.server.client.hset(signed.keys.key("tasks"), second.key, record[:start] + reference)

    await run_everything(signed)
    with pytest.raises(PayloadRefused):
        await within(second.get_result(timeout=WAIT_LIMIT))
    assert ran == ["a" * 5000]


# Results


async def finished_record(docket: Docket, key: str) -> bytes:
    return await docket.server.client.get(text_bytes(docket.keys.run(key)))


async def put_ending(docket: Docket, key: str, ending: Ending) -> None:
    """Overwrites the ending of a finished task."""
    record = await finished_record(docket, key)
    tail = read_finished(record).tail
    await docket.server.client.set(text_bytes(docket.keys.run(key)), record[: -len(tail)] + ending.pack(), px=60_000)


async def done(docket: Docket, amount: Any = 5) -> Execution[str]:
    execution = await docket.add(pay)(amount)
    await run_everything(docket)
    assert await within(execution.get_result(timeout=WAIT_LIMIT)) == f"paid {amount}"
    return execution


@pytest.mark.parametrize("kind", [VALUE, ERROR])
@pytest.mark.parametrize("header", [b"\x01\x01\x00", b"\x01\x01\x01\x042026" + b"\0" * 16])
async def test_a_forged_result_is_not_decoded(
    signed: Docket, trap: Trap, refused: list[tuple[str, str]], kind: int, header: bytes
) -> None:
    execution = await done(signed)
    await put_ending(signed, execution.key, Ending("w", None, kind, header + trap.pickled))

    with pytest.raises(PayloadRefused):
        await within(execution.get_result(timeout=WAIT_LIMIT))
    assert not trap.sprang
    assert refused[0][0] == "ending"


async def test_a_task_cannot_be_made_to_look_completed(signed: Docket) -> None:
    execution = await done(signed)
    await put_ending(signed, execution.key, Ending("w"))

    with pytest.raises(PayloadRefused, match="not signed"):
        await within(execution.get_result(timeout=WAIT_LIMIT))


async def test_the_result_of_another_task_is_refused(signed: Docket) -> None:
    first, second = await done(signed, 5), await done(signed, 7)
    ending = read_finished(await finished_record(signed, first.key)).tail
    record = await finished_record(signed, second.key)
    tail = read_finished(record).tail
    await signed.server.client.set(text_bytes(signed.keys.run(second.key)), record[: -len(tail)] + ending, px=60_000)

    with pytest.raises(PayloadRefused):
        await within(second.get_result(timeout=WAIT_LIMIT))


async def test_the_result_of_an_earlier_run_is_refused(signed: Docket) -> None:
    first = await signed.add(pay, key="daily")(5)
    await run_everything(signed)
    ending = read_finished(await finished_record(signed, first.key)).tail
    second = await signed.add(pay, key="daily")(7)
    await run_everything(signed)
    record = await finished_record(signed, second.key)
    tail = read_finished(record).tail
    await signed.server.client.set(text_bytes(signed.keys.run(second.key)), record[: -len(tail)] + ending, px=60_000)

    with pytest.raises(PayloadRefused):
        await within(second.get_result(timeout=WAIT_LIMIT))


async def test_an_event_with_a_forged_result_is_not_decoded(signed: Docket, trap: Trap, name: str) -> None:
    """A waiter gets its result from an event, which anybody may publish."""
    example = await done(signed)
    record = await finished_record(signed, example.key)
    tail = read_finished(record).tail
    forged = record[: -len(tail)] + Ending("w", None, VALUE, b"\x01\x01\x00" + trap.pickled).pack()
    waiting = await signed.add(pay, when=signed.now() + timedelta(hours=1))(7)
    channel = signed.ledger.keys.task_channel(waiting.key)

    async def publish() -> bool:
        event = b'{"type":"state","state":"completed"}\n' + forged
        return bool(await signed.server.client.publish(channel, event))

    result = asyncio.create_task(waiting.get_result(timeout=WAIT_LIMIT))
    await eventually(publish, "the waiter hears the event")
    await signed.cancel(waiting.key)
    with pytest.raises((PayloadRefused, ExecutionCancelled)):
        await within(result)
    assert not trap.sprang


# Tasks that nobody scheduled


async def test_a_task_that_an_attacker_adds_does_not_run(signed: Docket, trap: Trap) -> None:
    """He uses docket itself, without the keys."""
    async with Docket(signed.name, signed.url) as attacker, worker_at_work(signed):
        forged = await attacker.add(pay)(trap)
        await eventually(lambda: dead_letters(signed), "the task is buried")
        with pytest.raises(Exception, match="sealed with key '2026'"):
            await within(forged.get_result(timeout=WAIT_LIMIT))
    assert ran == []
    assert not trap.sprang


async def dead_letters(docket: Docket) -> int:
    return (await docket.ledger.queries.census()).dead
