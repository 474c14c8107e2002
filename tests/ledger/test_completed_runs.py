"""Most runs complete without progress and with a small result. Their settlements are short, their
events go only to listeners, and their stream entries are dropped together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from docket.ledger import Delivery, Settlement, SettleResult, as_chain_end, complete, requeue
from docket.ledger.endings import Ending, ending_event, read_ending
from docket.ledger.fleet import as_json, new_worker_id, worker_id
from docket.model.states import ExecutionState

from .invariants import GROUP
from .ledger_client import LEASE_MS, TTL_MS, LedgerClient, ended

DONE, LOST = SettleResult.DONE, SettleResult.LOST
TAIL = Ending("w", None, 1, b"value").pack()
MANY = 40


def short(run: Delivery, worker: str) -> Settlement:
    settlement = complete(run.key, run.epoch, TAIL)
    settlement.worker = worker
    return settlement


def publishes(ledger_client: LedgerClient) -> int:
    stats = ledger_client.client.info("commandstats")
    return int(stats.get("cmdstat_publish", {}).get("calls", 0))


async def test_a_short_settlement_writes_what_a_whole_one_writes(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    plain, whole = await ledger_client.start(worker, "plain"), await ledger_client.start(worker, "whole")
    same = ended(whole, ExecutionState.COMPLETED, has_progress=False)
    same.row = same.row._replace(tail=TAIL)
    assert await ledger_client.settle(short(plain, worker), same) == [DONE, DONE]

    looks = [(await ledger_client.ledger.tasks.get(key)).finished for key in ("plain", "whole")]
    for look in looks:
        assert look is not None
        assert look.state is ExecutionState.COMPLETED
        assert read_ending(look.tail) == Ending("w", None, 1, b"value")
    lives = [ledger_client.client.pttl(ledger_client.ledger.keys.run(key)) for key in ("plain", "whole")]
    assert all(0 < life <= TTL_MS for life in lives)
    ledger_client.checked_state()


def calls(ledger_client: LedgerClient, command: str) -> int:
    stats = ledger_client.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


def has_msetex(ledger_client: LedgerClient) -> bool:
    return ledger_client.client.eval("return redis.call('COMMAND', 'INFO', 'MSETEX')[1] and 1 or 0", 0) == 1


@pytest.mark.parametrize("may", ["+msetex", "-msetex"])
async def test_many_finished_records_are_written_together_if_the_server_permits_it(
    ledger_client: LedgerClient, may: str
) -> None:
    if not has_msetex(ledger_client):
        pytest.skip("this server has no MSETEX")
    worker = await ledger_client.hire()
    keys = [f"k{n}" if n else "with:colon%" for n in range(MANY)]
    await ledger_client.add(*keys)
    runs = await ledger_client.take(worker, MANY)
    client = ledger_client.client
    client.execute_command("ACL", "LOG", "RESET")
    client.execute_command("ACL", "SETUSER", "default", may)
    try:
        before = calls(ledger_client, "msetex"), calls(ledger_client, "set")
        gone = Delivery(runs[3].key, runs[3].record, runs[3].epoch - 1)
        settled = [*runs[:3], gone, *runs[4:]]
        answers = await ledger_client.settle(*(short(run, worker) for run in settled))
        written = calls(ledger_client, "msetex") - before[0], calls(ledger_client, "set") - before[1]
        refused = client.execute_command("ACL", "LOG")
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+msetex")
    assert answers == [LOST if run is gone else DONE for run in settled]
    assert written == ((1, 0) if may == "+msetex" else (0, MANY - 1))
    assert not refused
    for run in settled:
        if run is not gone:
            found = (await ledger_client.ledger.tasks.get(run.key)).finished
            assert found is not None
            assert read_ending(found.tail) == Ending("w", None, 1, b"value")
            assert 0 < ledger_client.client.pttl(ledger_client.ledger.keys.run(run.key)) <= TTL_MS
    assert list(ledger_client.checked_state().tasks) == [gone.key]


async def test_answers_come_in_the_order_of_the_settlements(ledger_client: LedgerClient) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("a", "b", "c", "d", "e")
    a, b, c, d = await ledger_client.take(worker, 4)
    (e,) = await ledger_client.take(other)
    gone = Delivery(a.key, a.record, a.epoch - 1)
    back = requeue(b.key, b.epoch)
    back.worker = worker
    answers = await ledger_client.settle(
        short(gone, worker), back, short(c, worker), short(e, other), short(d, worker), short(a, worker)
    )
    assert answers == [LOST, DONE, DONE, DONE, DONE, DONE]
    stored = ledger_client.checked_state()
    assert list(stored.tasks) == ["b"]


async def test_a_run_with_a_slot_of_a_limit_gives_it_back(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    first, second = await ledger_client.start(worker, "first"), await ledger_client.start(worker, "second")
    assert await ledger_client.acquire(first.key, first.epoch, [("L", 1)]) == 1
    assert await ledger_client.acquire(second.key, second.epoch, [("L", 1)]) == 2
    assert await ledger_client.settle(short(first, worker)) == [DONE]
    (woken,) = await ledger_client.take(worker)
    assert woken.key == "second"
    ledger_client.checked_state()


async def test_the_end_of_a_chain_and_the_run_of_another_worker_are_whole_settlements(
    ledger_client: LedgerClient,
) -> None:
    worker, other = await ledger_client.hire(), await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    stranger = short(run, other)
    assert await ledger_client.settle(stranger) == [LOST]
    assert await ledger_client.settle(as_chain_end(short(run, worker))) == [DONE]
    look = (await ledger_client.ledger.tasks.get("k")).finished
    assert look is not None
    assert look.state is ExecutionState.COMPLETED


async def test_the_script_writes_the_event_that_python_writes(ledger_client: LedgerClient) -> None:
    name = 'a "name" with % and : and é'
    worker = worker_id(name, "1")
    await ledger_client.ledger.fleet.register(worker, LEASE_MS, ("f",))
    pubsub = ledger_client.client.pubsub()
    pubsub.psubscribe("*")
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(short(run, worker))
    look = (await ledger_client.ledger.tasks.get("k")).finished
    assert look is not None
    ledger_client.client.publish("end", b"")
    events = [json.loads(data) for data in texts_until_end(pubsub)]
    assert events[-1] == json.loads(ending_event(ExecutionState.COMPLETED, as_json(name), look.completed_ms))
    pubsub.close()


def texts_until_end(pubsub: Any) -> list[bytes]:
    texts: list[bytes] = []
    for message in pubsub.listen():
        if message["type"] not in ("message", "pmessage"):
            continue
        if message["channel"] == b"end":
            return texts
        if message["data"].startswith(b"{"):
            texts.append(message["data"])
    raise AssertionError("the last message never came")


async def test_without_a_listener_nothing_is_published(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*(f"k{n}" for n in range(MANY)))
    ledger_client.client.config_resetstat()
    runs = await ledger_client.take(worker, MANY)
    await ledger_client.settle(*(short(run, worker) for run in runs))
    assert publishes(ledger_client) == 0


async def test_only_the_listeners_of_a_key_hear_of_it(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    keys = ledger_client.ledger.keys
    await ledger_client.add(*(f"k{n}" for n in range(MANY)))
    pubsub = ledger_client.client.pubsub()
    pubsub.subscribe(keys.listeners_channel, keys.task_channel("k7"), b"end")
    ledger_client.client.config_resetstat()
    runs = await ledger_client.take(worker, MANY)
    await ledger_client.settle(*(short(run, worker) for run in runs))
    # The ending comes with its record in a second message.
    assert publishes(ledger_client) == 3
    ledger_client.client.publish("end", b"")
    assert [json.loads(text)["state"] for text in texts_until_end(pubsub)] == ["running", "completed"]
    pubsub.close()


async def test_entries_of_runs_that_are_over_leave_the_stream_while_an_older_run_goes_on(
    ledger_client: LedgerClient,
) -> None:
    worker = await ledger_client.hire()
    stream = ledger_client.ledger.keys.stream
    await ledger_client.add(*(f"k{n:03}" for n in range(3 * MANY)))
    runs = await ledger_client.take(worker, 2 * MANY)
    old, *others = runs
    # Out of their order, and not all of them.
    await ledger_client.settle(*(short(run, worker) for run in reversed(others[: MANY + 5])))
    assert ledger_client.client.xlen(stream) == 3 * MANY - MANY - 5
    ledger_client.checked_state()
    # The oldest entry that is left is in the middle of the next batch.
    await ledger_client.settle(*(short(run, worker) for run in [old, *others[MANY + 10 :]]))
    assert ledger_client.client.xlen(stream) == MANY + 5
    ledger_client.checked_state()
    await ledger_client.settle(*(short(run, worker) for run in others[MANY + 5 : MANY + 10]))
    rest = await ledger_client.take(worker, 2 * MANY)
    assert len(rest) == MANY
    await ledger_client.settle(*(short(run, worker) for run in rest))
    assert ledger_client.client.xlen(stream) == 0
    ledger_client.checked_state()


async def test_entries_that_a_new_group_has_not_delivered_yet_stay(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    keys = ledger_client.ledger.keys
    await ledger_client.add(*(f"k{n:03}" for n in range(2 * MANY)))
    runs = await ledger_client.take(worker, 2 * MANY)
    ledger_client.client.xgroup_destroy(keys.stream, GROUP)
    ledger_client.client.xgroup_create(keys.stream, GROUP, "0")
    # The group knows nothing of these deliveries, and the other tasks still wait behind it.
    await ledger_client.settle(*(short(run, worker) for run in runs[MANY:]))
    assert ledger_client.client.xlen(keys.stream) == MANY
    again = await ledger_client.take(worker, MANY)
    assert [run.key for run in again] == [run.key for run in runs[:MANY]]
    assert [run.epoch for run in again] == [run.epoch for run in runs[:MANY]]
    await ledger_client.settle(*(short(run, worker) for run in again))
    ledger_client.checked_state()


async def test_the_hash_of_running_tasks_is_a_table(ledger_client: LedgerClient) -> None:
    """The server keeps a small hash of short values as a list, and walks over all of it for each
    read. The ids of workers are so long that the values are not short."""
    worker = new_worker_id("w")
    await ledger_client.ledger.fleet.register(worker, LEASE_MS, ("f",))
    await ledger_client.start(worker, "k")
    assert ledger_client.client.object("ENCODING", ledger_client.ledger.keys.key("running")) == b"hashtable"


async def test_a_batch_is_settled_whole_while_the_group_is_gone(ledger_client: LedgerClient) -> None:
    """Somebody has destroyed the group. The slots of limits are free, and the tasks that wait for
    them go on."""
    worker = await ledger_client.hire()
    keys = [f"k{n:03}" for n in range(MANY)]
    await ledger_client.add(*keys)
    runs = await ledger_client.take(worker, MANY)
    for run in runs:
        assert await ledger_client.acquire(run.key, run.epoch, [("L", MANY)]) == 1
    parked = await ledger_client.start(worker, "parked")
    assert await ledger_client.acquire(parked.key, parked.epoch, [("L", MANY)]) == 2
    ledger_client.client.xgroup_destroy(ledger_client.ledger.keys.stream, GROUP)
    assert await ledger_client.settle(*(short(run, worker) for run in runs)) == [DONE] * MANY
    (woken,) = await ledger_client.take(worker)
    assert woken.key == "parked"
    await ledger_client.settle(short(woken, worker))
    assert ledger_client.client.xlen(ledger_client.ledger.keys.stream) == 0
    ledger_client.checked_state()
