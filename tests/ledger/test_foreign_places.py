"""A record in a place that only a newer release knows: its workers see to it, and nobody else touches it."""

from __future__ import annotations

import pytest

from docket.storage.keys import text_bytes

from .desk import Desk, order

FOREIGN_PLACE = 99


def move_away(desk: Desk, key: str) -> bytes:
    """Puts the record into a place of a newer release, as its own scripts would."""
    tasks = text_bytes(desk.ledger.keys.tasks)
    record = bytearray(desk.client.hget(tasks, key))
    record[1] = FOREIGN_PLACE
    desk.client.hset(tasks, key, bytes(record))
    return bytes(record)


def record_of(desk: Desk, key: str) -> bytes:
    return desk.client.hget(text_bytes(desk.ledger.keys.tasks), key)


async def test_no_script_changes_a_record_in_an_unknown_place(desk: Desk) -> None:
    worker = await desk.hire()
    await desk.add("k")
    record = move_away(desk, "k")

    assert await desk.take(worker) == []
    desk.sweep()
    assert await desk.ledger.cancel("k") == 0
    assert await desk.ledger.clear() == 0
    assert (await desk.ledger.seize("k", "somebody", "somebody~hand-1", 1000))[1] == 0
    desk.bury(worker)
    assert record_of(desk, "k") == record


@pytest.mark.parametrize("replace", [False, True])
async def test_a_key_in_an_unknown_place_counts_as_taken(desk: Desk, replace: bool) -> None:
    await desk.add("k")
    record = move_away(desk, "k")
    (receipt,) = await desk.ledger.enqueue([order("k", replace=replace)])
    assert not receipt.scheduled
    assert record_of(desk, "k") == record
