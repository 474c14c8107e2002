"""A record in a place that only a newer release knows:
its workers see to it, and nobody else touches it."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files

import pytest

from docket.ledger import Delivery, ProgressChange, SettleResult, Unwritten, WaitingFunctions, finish, unknown_function
from docket.ledger.endings import Ending
from docket.ledger.letters import Edited, Retried
from docket.ledger.queries import SOURCES_BY_LOCATION, Source, TaskQuery
from docket.ledger.tasks import Cancelled, Rescheduled
from docket.model.states import ExecutionState
from docket.storage.keys import text_bytes
from docket.storage.schema.records import CANCELLED_EVENT, CANCELLED_TAIL, TASK_HEADER
from docket.storage.scripts import load
from tests.waiting import SECONDS

from .ledger_client import CALL, TTL_MS, LedgerClient, completed, ended, generated_key, new_call, new_task

FOREIGN_PLACE = 99
HOUR_MS = 3_600_000
SCRIPTS = sorted(
    file.name.removesuffix(".lua") for file in (files("docket.storage") / "lua").iterdir() if file.name.endswith(".lua")
)
Situation = Callable[[LedgerClient], Awaitable[bytes]]
SITUATIONS: dict[str, Situation] = {}


def situation(*scripts: str) -> Callable[[Situation], Situation]:
    """One in which these scripts meet the task "k" in a place that they do not know. It gives the
    record as it was before."""

    def register(met: Situation) -> Situation:
        SITUATIONS.update(dict.fromkeys(scripts, met))
        return met

    return register


def move_away(ledger_client: LedgerClient, key: str) -> bytes:
    """Puts the record into a place of a newer release, as its own scripts would."""
    tasks = text_bytes(ledger_client.ledger.keys.tasks)
    record = bytearray(ledger_client.client.hget(tasks, key))
    record[TASK_HEADER.at("location")] = FOREIGN_PLACE
    ledger_client.client.hset(tasks, key, bytes(record))
    return bytes(record)


def record_of(ledger_client: LedgerClient, key: str) -> bytes:
    return ledger_client.client.hget(text_bytes(ledger_client.ledger.keys.tasks), key)


async def add_and_move_away(ledger_client: LedgerClient, **options: float) -> bytes:
    await ledger_client.add("k", **options)
    return move_away(ledger_client, "k")


async def waiting_for_a_slot(ledger_client: LedgerClient, worker: str) -> tuple[bytes, Delivery]:
    """The record, and the run that holds the slot for which the task waits."""
    holder = await ledger_client.start(worker, "holder")
    assert await ledger_client.acquire("holder", holder.epoch, [("L", 1)]) == 1
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.acquire("k", run.epoch, [("L", 1)]) == 2
    return move_away(ledger_client, "k"), holder


@situation("enqueue")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    for replace in (False, True):
        (result,) = await ledger_client.ledger.tasks.enqueue([new_task("k", replace=replace)])
        assert not result.scheduled
    return record


@situation("enqueue_new")
async def _(ledger_client: LedgerClient) -> bytes:
    """Its direct delivery meets the entry of a task that has moved since."""
    worker, keys = await ledger_client.hire(), ledger_client.ledger.keys
    record = await add_and_move_away(ledger_client)
    listener = ledger_client.client.pubsub()
    listener.subscribe(keys.delivery_channel(worker))
    listener.get_message(timeout=SECONDS)
    ledger_client.client.zadd(keys.offers, {text_bytes(worker): 9e15})
    ledger_client.client.hset(keys.key("offer-secrets"), text_bytes(worker), b"s" * 16)
    await ledger_client.ledger.tasks.enqueue_new(new_call(generated_key(1), -1.0, CALL))
    assert not [entry for entry in ledger_client.stored_state().entries if entry.key == "k"], "the script has met it"
    return record


@situation("take")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(unknown_function("k", run.epoch))
    record = move_away(ledger_client, "k")
    assert await ledger_client.ledger.deliveries.take(worker, '"w"', 10, functions=WaitingFunctions(["f"])) == []
    return record


@situation("claim")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    entries = ledger_client.read(worker)
    record = move_away(ledger_client, "k")
    assert await ledger_client.claim(worker, entries) == []
    return record


@situation("stage")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client, due_ms=ledger_client.later())
    ledger_client.fall_due("k")
    staged = await ledger_client.ledger.tasks.stage()
    assert staged.next_ms is None, "a stager that comes again does not find it"
    return record


@situation("settle")
async def _(ledger_client: LedgerClient) -> bytes:
    record, holder = await waiting_for_a_slot(ledger_client, await ledger_client.hire())
    assert await ledger_client.settle(completed(holder)) == [SettleResult.DONE]
    return record


@situation("acquire")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    record, _ = await waiting_for_a_slot(ledger_client, worker)
    run = await ledger_client.start(worker, "new")
    await ledger_client.acquire("new", run.epoch, [("L", 5)])
    return record


@situation("set_limit", "set_limit")
async def _(ledger_client: LedgerClient) -> bytes:
    record, _ = await waiting_for_a_slot(ledger_client, await ledger_client.hire())
    await ledger_client.ledger.limits.declare("L", 5)
    return record


@situation("rate_limit", "rate_limit")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    record, holder = await waiting_for_a_slot(ledger_client, worker)
    first, limits = await ledger_client.start(worker, "first"), ledger_client.ledger.limits
    await limits.rate("first", first.epoch, "R", 1, HOUR_MS, drop=False)
    decision = await limits.rate("holder", holder.epoch, "R", 1, HOUR_MS, drop=False)
    assert decision.wait_ms > 0
    return record


@situation("debounce")
async def _(ledger_client: LedgerClient) -> bytes:
    worker, limits = await ledger_client.hire(), ledger_client.ledger.limits
    leader = await ledger_client.start(worker, "k")
    await limits.debounce("k", leader.epoch, "D", HOUR_MS, latest=True)
    record = move_away(ledger_client, "k")
    other = await ledger_client.start(worker, "other")
    await limits.debounce("other", other.epoch, "D", HOUR_MS, latest=True)
    return record


@situation("cooldown")
async def _(ledger_client: LedgerClient) -> bytes:
    worker, limits = await ledger_client.hire(), ledger_client.ledger.limits
    run = await ledger_client.start(worker, "k")
    record = move_away(ledger_client, "k")
    await limits.cool_down("k", run.epoch, "C", HOUR_MS)
    return record


@situation("leave")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    record, _ = await waiting_for_a_slot(ledger_client, worker)
    # The body of the run that is replaced may still
    # run: it keeps its slot until its worker is gone.
    await ledger_client.add("holder", replace=True)
    await ledger_client.ledger.fleet.leave(worker)
    return record


@situation("reclaim")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    ledger_client.read(worker)
    record = move_away(ledger_client, "k")
    ledger_client.bury(worker)
    return record


@situation("put_back_unclaimed")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    ledger_client.read(worker)
    record = move_away(ledger_client, "k")
    assert ledger_client.ledger.fleet.put_back_unclaimed(ledger_client.client, worker, 0, None) == 0
    return record


@situation("cancel")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    automatic, cancelled = ledger_client.ledger.keys.key("automatic"), ledger_client.ledger.keys.key("cancelled-chains")
    ledger_client.client.sadd(automatic, "k")
    assert await ledger_client.ledger.tasks.cancel("k") == 0
    assert not ledger_client.client.exists(cancelled)
    return record


@situation("clear")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    assert await ledger_client.ledger.tasks.clear() == 0
    return record


@situation("claim_by_key", "claim_by_key")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    assert (await ledger_client.ledger.tasks.claim_by_key("k", "somebody", "somebody~hand-1", 1000))[1] == 0
    return record


@situation("sweep")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    assert ledger_client.sweep() == 0
    return record


@situation("progress")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    assert await ledger_client.ledger.tasks.progress([ProgressChange("k", add=1)]) == [Unwritten.NOT_FOUND]
    return record


@situation("retry_letters", "discard_letters", "edit_letter", "trim_letters")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(ended(run, ExecutionState.FAILED, dead_letter=True))
    (id,) = ledger_client.checked_state().letters
    record = await add_and_move_away(ledger_client)
    ledger = ledger_client.ledger
    assert await ledger.letters.retry("batch", 1, [(id, 0)]) == [Retried.KEY_TAKEN]
    assert await ledger.letters.edit(id, 0, CALL, None, b"") is Edited.DONE
    ledger.letters.trim(ledger_client.client)
    assert await ledger.letters.discard("batch", 2, [id]) == 1
    return record


@situation("fail_unknown")
async def _(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire("g")
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.settle(unknown_function("k", run.epoch)) == [SettleResult.WAITS]
    record = move_away(ledger_client, "k")
    assert await ledger_client.ledger.tasks.fail_unknown("f", Ending(), CANCELLED_EVENT) == 0
    return record


async def held_and_moved_away(ledger_client: LedgerClient) -> bytes:
    worker = await ledger_client.hire()
    await ledger_client.add("k", "other")
    await ledger_client.ledger.pauses.store("=f", b"rule")
    assert await ledger_client.take(worker) == []
    return move_away(ledger_client, "k")


@situation("resume")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await held_and_moved_away(ledger_client)
    assert await ledger_client.ledger.pauses.resume("=f") == 2
    return record


@situation("release")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await held_and_moved_away(ledger_client)
    assert await ledger_client.ledger.pauses.resume("=f", 0) == 2
    assert (await ledger_client.ledger.pauses.release("=f")).moved == 1
    return record


@situation("import_tasks")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client, due_ms=ledger_client.later())
    # The other program's call of the same key, whose times are in seconds.
    ledger_client.client.zadd(ledger_client.ledger.keys.key("queue"), {"k": 1})
    assert await ledger_client.ledger.run_script("import_tasks", [("queue", "", b"k", 1000, b"f", CALL, 1, 0)]) == [2]
    return record


@situation("count_by_function")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    for source in (Source.EVERY, Source.QUEUED):
        (row,) = (await ledger_client.ledger.queries.find(source, TaskQuery("f"), None, 10, 10)).tasks
        assert (row.key, row.state) == ("k", ExecutionState.QUEUED)
    assert (await ledger_client.ledger.queries.count_by_function())["f"].queued == 1
    return record


@situation("find_tasks", "sample_tasks", "list_chains", "list_limits", "list_windows", "reschedule", "cancel_many")
async def _(ledger_client: LedgerClient) -> bytes:
    """Pages of tasks do not have it, since it is nowhere that this release knows; the sample counts
    it as queued, and nothing changes it."""
    ledger = ledger_client.ledger
    record = await add_and_move_away(ledger_client)
    for source in (Source.RUNNING, *SOURCES_BY_LOCATION.values()):
        assert (await ledger.queries.find(source, TaskQuery(), None, 10, 10)).tasks == []
    counts, read, total = await ledger.queries.sample_by_function(10)
    assert (counts["f"].queued, read, total) == (1, 10, 1) or (counts["f"].queued, total) == (read, 1)
    task = (await ledger.tasks.get("k")).task
    assert task is not None
    assert (await ledger.tasks.reschedule("k", 0))[0] is Rescheduled.NOT_SCHEDULED
    seen = [("k", task.generation, task.submission)]
    assert await ledger.tasks.cancel_many(seen, with_running=True) == [Cancelled.SKIPPED]
    ledger_client.client.sadd(ledger.keys.key("automatic"), "k")
    assert [row.name async for row in ledger.queries.chains()] == ["k"]
    ledger_client.client.hset(ledger.keys.key("limits"), "L", 1)
    ledger_client.client.zadd(ledger.keys.key("waiters:=L"), {"k": 1})
    [limit] = (await ledger.limits.in_use(None, 10, 10)).rows
    assert [waiter.key for waiter in limit.waiters] == ["k"]
    later = time.time() * 1000 + HOUR_MS
    ledger_client.client.zadd(ledger.keys.key("windows"), {"1 1000 rate:=L": later})
    ledger_client.client.zadd(ledger.keys.key("rate-waiters:=L"), {"k": later})
    [window] = (await ledger.limits.windows(0, 10, 10)).rows
    assert [key for key, _, _ in window.waiters] == ["k"]
    return record


@situation("why")
async def _(ledger_client: LedgerClient) -> bytes:
    record = await add_and_move_away(ledger_client)
    facts = await ledger_client.ledger.queries.facts("k")
    assert facts.task is not None
    assert facts.task.location == FOREIGN_PLACE
    return record


def reads_records(name: str) -> bool:
    """Whether a script reads a task record, which has the
    place. One that looks at flags alone counts, too."""
    return bool(re.search(r"\b(unpack_task|flags_of|is_foreign)\(", load(name).source))


@pytest.mark.parametrize("script", [name for name in SCRIPTS if reads_records(name)])
async def test_a_script_leaves_a_record_in_an_unknown_place_alone(ledger_client: LedgerClient, script: str) -> None:
    record = await SITUATIONS[script](ledger_client)
    assert record_of(ledger_client, "k") == record


async def test_the_run_that_counts_ends_its_task_wherever_its_record_says_it_is(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    move_away(ledger_client, "k")
    ending = finish("k", run.epoch, ExecutionState.COMPLETED, TTL_MS, CANCELLED_TAIL, CANCELLED_EVENT)
    assert await ledger_client.settle(ending) == [SettleResult.DONE]
    assert record_of(ledger_client, "k") is None


async def test_a_slot_for_which_such_a_task_waited_goes_to_the_next(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    _, holder = await waiting_for_a_slot(ledger_client, worker)
    run = await ledger_client.start(worker, "next")
    assert await ledger_client.acquire("next", run.epoch, [("L", 1)]) == 2
    await ledger_client.settle(completed(holder))
    assert [delivery.key for delivery in await ledger_client.take(worker)] == ["next"]
