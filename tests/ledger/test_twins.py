"""Fast paths of the scripts and the general paths that mean the same
(docs/design/performance.md, Twins): both give the same answers and store the same."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from docket.codec.packing import pack_for_script
from docket.ledger import Delivery, Ledger, Settlement, SettleResult, SuspectNotes, complete, requeue
from docket.ledger.endings import Ending
from docket.ledger.statistics import cell_of
from docket.ledger.values import WaitingFunctions
from docket.model.states import KIND_NUMBERS, EndingKind, ExecutionState, Measures
from docket.model.task_keys import key_end
from docket.storage.records import read_finished
from docket.storage.scripts import assemble

from .ledger_client import LedgerClient, ended, generated_key, new_call, new_task
from .test_direct_delivery import Channel, Hire, channels, hire
from .test_pauses import pause
from .test_statistics import MINUTE, totals

__all__ = ["channels", "hire"]

# A due time that no server has reached. All times that servers write are earlier.
LATER_MS = 4e12
TAIL = Ending("w").pack()
# Before the record in the event of an end: its mark and the proof.
PROOF_SIZE = 42
DRAWN = random.Random(30)


def alike(value: Any) -> Any:
    """The value without times, epochs, and the numbers that follow from them."""
    if dataclasses.is_dataclass(value):
        # Two entries of one millisecond have two numbers, and a submission is a time.
        return {
            f.name: alike(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.name not in ("entry_seq", "submission", "id", "entry", "delivered_up_to", "finished_ttl", "look_at")
        }
    if isinstance(value, dict):
        value = cast("dict[Any, Any]", value)
        return {alike(key): alike(kept) for key, kept in value.items()}
    if isinstance(value, list | tuple):
        value = cast("list[Any]", value)
        return [alike(kept) for kept in value]
    if isinstance(value, int | float) and (1e12 < value < 3e12 or 1e15 < value < 3e15):
        return "a time"
    return value


async def start_empty(ledger_client: LedgerClient) -> str:
    """The next worker, on a server without any docket."""
    ledger_client.client.flushdb()
    worker = "w~1"
    await ledger_client.ledger.fleet.register(worker, 600_000, ("f", "nobody"))
    return worker


def state(ledger_client: LedgerClient) -> Any:
    return alike(ledger_client.checked_state())


@pytest.mark.parametrize("seed", range(3))
async def test_new_keys_are_stored_by_three_paths(ledger_client: LedgerClient, seed: int) -> None:
    drawn = random.Random(seed)
    calls = [
        (generated_key(number), drawn.choice([1.0, LATER_MS + number]), drawn.randbytes(drawn.randrange(300)))
        for number in range(60)
    ]
    tasks = ledger_client.ledger.tasks
    states: list[Any] = []
    answers: list[Any] = []
    for is_fresh in (True, False):
        await start_empty(ledger_client)
        answers.append(
            await tasks.enqueue(
                [new_task(key, call, due_ms=due, fresh=is_fresh, key_end=key_end(key)) for key, due, call in calls]
            )
        )
        states.append(state(ledger_client))
    await start_empty(ledger_client)
    assert (await tasks.enqueue_new([value for key, due, call in calls for value in new_call(key, due, call)]))[1] == ()
    states.append(state(ledger_client))
    assert alike(answers[0]) == alike(answers[1])
    assert states[0] == states[1] == states[2]
    assert len(states[0]["tasks"]) == len(calls)


async def test_a_plain_claim_begins_the_runs_of_a_full_one(ledger_client: LedgerClient) -> None:
    results: list[Any] = []
    for is_full in (False, True):
        worker = await start_empty(ledger_client)
        await ledger_client.add(*(f"k{number}" for number in range(20)))
        if is_full:
            await pause(ledger_client, "c" * 40)
        runs = await ledger_client.take(worker)
        stored = state(ledger_client)
        del stored["pauses"]
        assert [second.epoch - first.epoch for first, second in itertools.pairwise(runs)] == [1] * 19
        results.append((alike([(run.key, run.epoch) for run in runs]), stored))
        assert await ledger_client.settle(*(complete(run.key, run.epoch, TAIL) for run in runs)) == [1] * 20
    assert results[0] == results[1]


async def test_a_direct_delivery_begins_the_run_of_a_claim(ledger_client: LedgerClient, hire: Hire) -> None:
    worker = await hire()
    await ledger_client.add("taken")
    (taken,) = await ledger_client.take(worker.id)
    await worker.offer()
    await ledger_client.add("handed")
    (handed,) = worker.handed()
    stored = ledger_client.checked_state()
    runs = [stored.running[run.key] for run in (taken, handed)]
    assert alike(runs[0]) == alike(runs[1])
    assert [run.epoch for run in runs] == [taken.epoch, handed.epoch]
    entries = {entry.key: entry for entry in stored.entries}
    for run in (taken, handed):
        assert (entries[run.key].id, entries[run.key].holder) == (stored.running[run.key].entry, worker.id)
        assert ledger_client.client.hget(ledger_client.ledger.keys.tasks, run.key) == run.record


async def test_a_take_with_functions_reads_what_any_take_reads(ledger_client: LedgerClient) -> None:
    results: list[Any] = []
    for functions in (None, WaitingFunctions(["nobody"])):
        worker = await start_empty(ledger_client)
        await ledger_client.add("before", "old")
        before = await ledger_client.take(worker, 2)
        await ledger_client.add("new", "newer", "newest")
        # Both go to the front stream.
        again = (requeue(run.key, run.epoch) for run in before)
        assert await ledger_client.settle(*again) == [SettleResult.DONE] * 2
        found = await ledger_client.ledger.deliveries.take(worker, '"w"', 4, None, SuspectNotes(), functions=functions)
        assert found is not None
        results.append(([run.key for run in found], state(ledger_client)))
    assert results[0] == results[1]
    assert results[0][0] == ["before", "old", "new", "newer"]


def by_the_list(run: Delivery) -> Settlement:
    settlement = complete(run.key, run.epoch, TAIL)
    settlement.worker = "w~1"
    return settlement


def as_item(run: Delivery, has_progress: bool = False) -> Settlement:
    settlement = ended(run, ExecutionState.COMPLETED, has_progress=has_progress)
    settlement.row = settlement.row._replace(tail=TAIL, ttl=False, event=False)  # pyright: ignore[reportCallIssue]
    settlement.worker = "w~1"
    return settlement


def fully(run: Delivery) -> Settlement:
    """An end that may have progress is not plain."""
    return as_item(run, has_progress=True)


WAYS: Sequence[Callable[[Delivery], Settlement]] = (by_the_list, as_item, fully)


async def test_a_plain_end_is_a_full_end(ledger_client: LedgerClient, channels: Callable[[bytes], Channel]) -> None:
    results: list[Any] = []
    for count in (1, 40):
        for way in WAYS:
            worker = await start_empty(ledger_client)
            keys = [f"k:{number}%" for number in range(count)]
            await ledger_client.add(*keys)
            runs = await ledger_client.take(worker)
            # Whoever listens to a task also listens here.
            channels(ledger_client.ledger.keys.listeners_channel)
            events = channels(ledger_client.ledger.keys.task_channel(keys[0]))
            assert await ledger_client.settle(*map(way, runs)) == [SettleResult.DONE] * count
            stored = state(ledger_client)
            assert (stored["tasks"], stored["running"], len(stored["finished"])) == ({}, {}, count)
            event, record = events.heard()
            told = re.sub(rb"\d{13,}", b"a time", event), alike(read_finished(record[PROOF_SIZE:]))
            lives = [life // 60_000 for life in ledger_client.stored_state().finished_ttl.values()]
            results.append((count, stored, told, set(lives)))
    assert results[0] == results[1] == results[2]
    assert results[3] == results[4] == results[5]


async def test_runs_are_counted_alike_one_by_one_and_together(ledger_client: LedgerClient) -> None:
    """Of a batch, only the first run of a function is counted by `count_run`."""
    results: list[Any] = []
    for way in WAYS[:2]:
        for step in (1, 30):
            worker = await start_empty(ledger_client)
            functions = [DRAWN.choice("fg") for _ in range(30)] if not results else results[0][0]
            await ledger_client.ledger.tasks.enqueue(
                [new_task(f"k{at}", function=name) for at, name in enumerate(functions)]
            )
            runs = await ledger_client.take(worker)
            for at in range(0, 30, step):
                settled = [counted(way(run), at + i) for i, run in enumerate(runs[at : at + step])]
                assert set(await ledger_client.settle(*settled)) == {SettleResult.DONE}
            results.append((functions, await counts(ledger_client.ledger)))
    assert results[0] == results[1] == results[2] == results[3]
    assert results[0][1]


def counted(settlement: Settlement, at: int) -> Settlement:
    seconds = 2.0 ** (at % 7 - 4)
    settlement.cell, settlement.measures = cell_of(KIND_NUMBERS[EndingKind.SUCCEEDED], seconds, at), Measures(seconds)
    return settlement


async def counts(ledger: Ledger) -> dict[str, Any]:
    """Of all minutes together: the minute may end while the test runs."""
    minute = int((await ledger.queries.census()).server_ms // MINUTE)
    return {name: dataclasses.asdict(row) for name, row in (await totals(ledger, minute - 5, minute)).items()}


DROP = assemble(
    "drop",
    "-- A test.\n-- uses: keys, records, placement\n"
    "local entries = cmsgpack.unpack(ARGV[2])\n"
    "local ids = {}\n"
    "for at = 1, #entries, 2 do ids[#ids + 1] = id_text(entries[at], entries[at + 1]) end\n"
    "drop_run_entries(STREAM, entries)\n"
    "drop_entries(FRONT, ids)\n"
    "return {#call('XRANGE', STREAM, '-', '+'), #call('XRANGE', FRONT, '-', '+'), ids}",
).source


@pytest.mark.parametrize("count", [1, 15, 40, 300])
async def test_entries_that_are_dropped_together_are_those_that_their_ids_name(
    ledger_client: LedgerClient, count: int
) -> None:
    keys, client = ledger_client.ledger.keys, ledger_client.client
    drawn = random.Random(count)
    ids = sorted({(10**12 + drawn.randrange(count), drawn.randrange(5_000)) for _ in range(count)})
    for name in (keys.stream, keys.front):
        for ms, number in [*ids, (2 * 10**12, 0)]:
            client.xadd(name, {"k": "any"}, id=f"{ms}-{number}")
    entries = [value for ms, number in ids for value in (float(ms), number)]
    left = client.eval(DROP, 1, keys.root, keys.channels, pack_for_script(entries))
    assert left == [1, 1, [f"{ms}-{number}".encode() for ms, number in ids]]
