"""A record in a place that only a newer release knows: its workers see to it, and nobody else touches it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib.resources import files

import pytest

from docket.ledger import Answer, Delivery, ProgressChange, Unwritten, WaitingFunctions, finish, unknown_function
from docket.ledger.endings import CANCELLED_EVENT, CANCELLED_TAIL
from docket.ledger.limits import LimitBook
from docket.ledger.queries import Query, find, tally
from docket.ledger.unknown_functions import fail_unknown
from docket.model.states import ExecutionState
from docket.storage.keys import text_bytes
from docket.storage.records import TASK_HEADER
from docket.storage.scripts import load

from .desk import CALL, TTL_MS, Desk, completed, order

FOREIGN_PLACE = 99
HOUR_MS = 3_600_000
SCRIPTS = sorted(
    file.name.removesuffix(".lua") for file in (files("docket.storage") / "lua").iterdir() if file.name.endswith(".lua")
)
Situation = Callable[[Desk], Awaitable[bytes]]
SITUATIONS: dict[str, Situation] = {}


def situation(*scripts: str) -> Callable[[Situation], Situation]:
    """One in which these scripts meet the task "k" in a place that they do not know. It gives the record as it was before."""

    def register(met: Situation) -> Situation:
        SITUATIONS.update(dict.fromkeys(scripts, met))
        return met

    return register


def move_away(desk: Desk, key: str) -> bytes:
    """Puts the record into a place of a newer release, as its own scripts would."""
    tasks = text_bytes(desk.ledger.keys.tasks)
    record = bytearray(desk.client.hget(tasks, key))
    record[TASK_HEADER.at(TASK_HEADER.fields[1])] = FOREIGN_PLACE
    desk.client.hset(tasks, key, bytes(record))
    return bytes(record)


def record_of(desk: Desk, key: str) -> bytes:
    return desk.client.hget(text_bytes(desk.ledger.keys.tasks), key)


async def add_and_move_away(desk: Desk, **options: float) -> bytes:
    await desk.add("k", **options)
    return move_away(desk, "k")


async def waiting_for_a_slot(desk: Desk, worker: str) -> tuple[bytes, Delivery]:
    """The record, and the run that holds the slot for which the task waits."""
    holder = await desk.start(worker, "holder")
    assert await desk.acquire("holder", holder.epoch, [("L", 1)]) == 1
    run = await desk.start(worker, "k")
    assert await desk.acquire("k", run.epoch, [("L", 1)]) == 2
    return move_away(desk, "k"), holder


@situation("enqueue")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    for replace in (False, True):
        (receipt,) = await desk.ledger.enqueue([order("k", replace=replace)])
        assert not receipt.scheduled
    return record


@situation("take")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    await desk.settle(unknown_function("k", run.epoch))
    record = move_away(desk, "k")
    assert await desk.ledger.take(worker, '"w"', 10, functions=WaitingFunctions(["f"])) == []
    return record


@situation("claim")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    await desk.add("k")
    entries = desk.read(worker)
    record = move_away(desk, "k")
    assert await desk.claim(worker, entries) == []
    return record


@situation("stage")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk, due_ms=desk.later())
    desk.fall_due("k")
    staged = await desk.ledger.stage()
    assert staged.next_ms is None, "a stager that comes again does not find it"
    return record


@situation("settle")
async def _(desk: Desk) -> bytes:
    record, holder = await waiting_for_a_slot(desk, await desk.hire())
    assert await desk.settle(completed(holder)) == [Answer.DONE]
    return record


@situation("acquire")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    record, _ = await waiting_for_a_slot(desk, worker)
    run = await desk.start(worker, "new")
    await desk.acquire("new", run.epoch, [("L", 5)])
    return record


@situation("declare", "set_limit")
async def _(desk: Desk) -> bytes:
    record, _ = await waiting_for_a_slot(desk, await desk.hire())
    await LimitBook(desk.ledger).declare("L", 5)
    return record


@situation("rate", "rate_limit")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    record, holder = await waiting_for_a_slot(desk, worker)
    first, limits = await desk.start(worker, "first"), LimitBook(desk.ledger)
    await limits.rate("first", first.epoch, "R", 1, HOUR_MS, drop=False)
    decision = await limits.rate("holder", holder.epoch, "R", 1, HOUR_MS, drop=False)
    assert decision.wait_ms > 0
    return record


@situation("debounce")
async def _(desk: Desk) -> bytes:
    worker, limits = await desk.hire(), LimitBook(desk.ledger)
    leader = await desk.start(worker, "k")
    await limits.debounce("k", leader.epoch, "D", HOUR_MS, latest=True)
    record = move_away(desk, "k")
    other = await desk.start(worker, "other")
    await limits.debounce("other", other.epoch, "D", HOUR_MS, latest=True)
    return record


@situation("cooldown")
async def _(desk: Desk) -> bytes:
    worker, limits = await desk.hire(), LimitBook(desk.ledger)
    run = await desk.start(worker, "k")
    record = move_away(desk, "k")
    await limits.cool_down("k", run.epoch, "C", HOUR_MS)
    return record


@situation("leave")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    record, _ = await waiting_for_a_slot(desk, worker)
    # The body of the run that is replaced may still run: it keeps its slot until its worker is gone.
    await desk.add("holder", replace=True)
    await desk.ledger.leave(worker)
    return record


@situation("reclaim")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    await desk.add("k")
    desk.read(worker)
    record = move_away(desk, "k")
    desk.bury(worker)
    return record


@situation("release")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire()
    await desk.add("k")
    desk.read(worker)
    record = move_away(desk, "k")
    assert desk.ledger.release_unread(desk.client, worker, 0, None) == 0
    return record


@situation("cancel")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    automatic, cancelled = desk.ledger.keys.key("automatic"), desk.ledger.keys.key("cancelled-chains")
    desk.client.sadd(automatic, "k")
    assert await desk.ledger.cancel("k") == 0
    assert not desk.client.exists(cancelled)
    return record


@situation("clear")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    assert await desk.ledger.clear() == 0
    return record


@situation("seize", "claim_by_key")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    assert (await desk.ledger.seize("k", "somebody", "somebody~hand-1", 1000))[1] == 0
    return record


@situation("sweep")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    assert desk.sweep() == 0
    return record


@situation("progress")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    assert await desk.ledger.progress([ProgressChange("k", add=1)]) == [Unwritten.NOT_FOUND]
    return record


@situation("fail_unknown")
async def _(desk: Desk) -> bytes:
    worker = await desk.hire("g")
    run = await desk.start(worker, "k")
    assert await desk.settle(unknown_function("k", run.epoch)) == [Answer.WAITS]
    record = move_away(desk, "k")
    assert await fail_unknown(desk.ledger, "f", CANCELLED_TAIL, CANCELLED_EVENT) == 0
    return record


@situation("adopt")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk, due_ms=desk.later())
    # The other program's call of the same key, whose times are in seconds.
    desk.client.zadd(desk.ledger.keys.key("queue"), {"k": 1})
    assert await desk.ledger.ask("adopt", [("queue", "", b"k", 1000, b"f", CALL, 1, 0)]) == [2]
    return record


@situation("page", "list_unfinished", "upcoming", "list_scheduled", "tally", "count_by_function")
async def _(desk: Desk) -> bytes:
    record = await add_and_move_away(desk)
    (row,) = (await find(desk.ledger, Query(function="f"))).rows
    assert (row.key, row.state) == ("k", ExecutionState.QUEUED)
    assert (await find(desk.ledger, Query(state=ExecutionState.SCHEDULED))).rows == []
    assert (await tally(desk.ledger))["f"].queued == 1
    return record


def reads_records(name: str) -> bool:
    """Whether a script reads a task record, which has the place. One that looks at flags alone counts, too."""
    return bool(re.search(r"\b(unpack_task|flags_of|is_foreign)\(", load(name).source))


@pytest.mark.parametrize("script", [name for name in SCRIPTS if reads_records(name)])
async def test_a_script_leaves_a_record_in_an_unknown_place_alone(desk: Desk, script: str) -> None:
    record = await SITUATIONS[script](desk)
    assert record_of(desk, "k") == record


async def test_the_run_that_counts_ends_its_task_wherever_its_record_says_it_is(desk: Desk) -> None:
    worker = await desk.hire()
    run = await desk.start(worker, "k")
    move_away(desk, "k")
    ending = finish("k", run.epoch, ExecutionState.COMPLETED, TTL_MS, CANCELLED_TAIL, CANCELLED_EVENT)
    assert await desk.settle(ending) == [Answer.DONE]
    assert record_of(desk, "k") is None


async def test_a_slot_for_which_such_a_task_waited_goes_to_the_next(desk: Desk) -> None:
    worker = await desk.hire()
    _, holder = await waiting_for_a_slot(desk, worker)
    run = await desk.start(worker, "next")
    assert await desk.acquire("next", run.epoch, [("L", 1)]) == 2
    await desk.settle(completed(holder))
    assert [delivery.key for delivery in await desk.take(worker)] == ["next"]
