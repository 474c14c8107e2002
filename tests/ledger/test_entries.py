"""Stream entries name their task: by its key, or by the bytes of a generated key."""

from __future__ import annotations

import uuid
from typing import Any

import msgpack
import pytest

from docket import Docket, Worker
from docket.model.task_keys import BEGINNING_SIZE, key_end, new_key, printed_end
from docket.storage.keys import bytes_text
from tests.waiting import ends

from .invariants import GROUP
from .ledger_client import LedgerClient, generated_key, new_call


async def entries(docket: Docket, stream: str | None = None) -> list[dict[bytes, bytes]]:
    async with docket.redis() as client:
        found: Any = await client.xrange(stream or docket.stream_key)
        return [fields for _, fields in found]


async def run_nothing(number: int) -> None: ...


async def test_a_generated_key_takes_twelve_bytes_in_the_stream(docket: Docket) -> None:
    docket.register(run_nothing)
    single = await docket.add(run_nothing)(1)
    given = await docket.add(run_nothing, key="chosen")(2)
    one, other = await docket.add_many([docket.call(run_nothing)(3), docket.call(run_nothing)(4)])
    expected = [
        {b"u" + execution.key[:9].encode(): uuid.UUID(execution.key).bytes[4:]} for execution in (single, one, other)
    ]
    assert await entries(docket) == [expected[0], {b"k": given.key.encode()}, *expected[1:]]


async def test_a_key_that_looks_like_a_generated_one_is_stored_as_it_is(docket: Docket, worker: Worker) -> None:
    """Of two spellings of one UUID each is a key of its own."""
    ran: list[int] = []

    async def note(number: int) -> None:
        ran.append(number)

    keys = [str(uuid.uuid4()), str(uuid.uuid4()).upper(), uuid.uuid4().hex, new_key()]
    for number, key in enumerate(keys):
        await docket.add(note, key=key)(number)
    assert await entries(docket) == [{b"k": key.encode()} for key in keys]
    await ends(worker.run_until_finished())
    assert ran == [0, 1, 2, 3]


def test_bytes_and_text_of_a_key_belong_together() -> None:
    for _ in range(1000):
        key = new_key()
        assert key_end(key) == uuid.UUID(key).bytes[4:]
        assert key[:BEGINNING_SIZE] + printed_end(key_end(key)) == key


async def test_a_short_entry_that_is_damaged_stops_nobody(docket: Docket, worker: Worker) -> None:
    docket.register(run_nothing)
    await docket.add(run_nothing)(1)
    async with docket.redis() as client:
        await client.xadd(docket.stream_key, {"u01a1eed1-": b"not twelve"})
    await docket.add(run_nothing)(2)
    await ends(worker.run_until_finished())
    assert await entries(docket) == []
    assert await entries(docket, docket.key("foreign")) == [{b"u01a1eed1-": b"not twelve"}]


@pytest.mark.parametrize("lost", [False, True], ids=["taken", "recovered"])
async def test_an_entry_of_another_program_with_thousands_of_fields_stops_nobody(
    ledger_client: LedgerClient, lost: bool
) -> None:
    many = {f"field {number}": "x" for number in range(4100)}
    await ledger_client.add("before")
    ledger_client.client.xadd(ledger_client.ledger.keys.stream, many)
    await ledger_client.add("after")
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    if lost:
        ledger_client.client.xreadgroup(GROUP, worker, {ledger_client.ledger.keys.stream: ">"}, count=100)
        ledger_client.end_lease(worker)
        ledger_client.reclaim()
    assert [run.key for run in await ledger_client.take(other)] == ["before", "after"]
    ((_, kept),) = ledger_client.client.xrange(ledger_client.ledger.keys.key("foreign"))
    assert len(msgpack.unpackb(kept[b"packed"])) == 2 * len(many)


async def test_tasks_with_short_entries_are_recovered_and_put_back(ledger_client: LedgerClient) -> None:
    keys = [generated_key(number) for number in range(3)]
    await ledger_client.ledger.tasks.enqueue_new([value for key in keys for value in new_call(key, -1.0)])
    lost, worker = await ledger_client.hire(), await ledger_client.hire()
    assert [run.key for run in await ledger_client.take(lost, 1)] == keys[:1]
    # Delivered, but not claimed.
    assert [bytes_text(entry.key) for entry in ledger_client.read(lost, 1)] == keys[1:2]
    ledger_client.end_lease(lost)
    assert ledger_client.reclaim() == [1, 2, 0, 0, 0]
    assert [run.key for run in await ledger_client.take(worker, 3)] == keys
    ledger_client.checked_state()


@pytest.mark.parametrize("at_once", [1, 3, 20])
async def test_entries_of_all_forms_may_follow_each_other(ledger_client: LedgerClient, at_once: int) -> None:
    """Keys from two spans of 65 seconds in turn, as of producers whose clocks differ, and chosen
    keys."""
    keys: list[str] = []
    for number in range(4):
        generated = [generated_key(number), generated_key(number).replace("01a1eed1", "01a1eed2")]
        await ledger_client.ledger.tasks.enqueue_new([value for key in generated for value in new_call(key, -1.0)])
        await ledger_client.add(f"chosen {number}")
        await ledger_client.add(generated_key(100 + number), fresh=True, key_end=key_end(generated_key(100 + number)))
        keys += [*generated, f"chosen {number}", generated_key(100 + number)]
    worker, taken = await ledger_client.hire(), list[str]()
    while runs := await ledger_client.take(worker, at_once):
        taken += [run.key for run in runs]
    assert taken == keys
    ledger_client.checked_state()
