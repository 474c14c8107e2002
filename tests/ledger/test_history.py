"""Finished runs have entries in the history: every
failure, samples of the others, within bounds."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from docket.codec.packing import pack_for_script
from docket.ledger import Delivery, Ledger, Settlement, SettleResult, as_retry, finish, reschedule, unknown_function
from docket.ledger import history as stored
from docket.ledger.endings import Ending, ending_event
from docket.ledger.history import FinishedRun
from docket.ledger.settlements import as_going_on
from docket.ledger.statistics import OTHERS, Row
from docket.model.retention import NOTHING, Keep
from docket.model.states import EndingKind, ExecutionState

from .ledger_client import TTL_MS, LedgerClient, completed
from .test_statistics import MINUTE, NOON, counted, hold

SECOND, DAY = 1_000, 86_400_000
FAILED = EndingKind.FAILED


async def history(ledger: Ledger, before: str | None = None, **selected: Any) -> list[FinishedRun]:
    return [run async for run in ledger.history.newest(before, **selected)]


def failed(delivery: Delivery, kind: EndingKind = FAILED, error: str = "ValueError: no") -> Settlement:
    state = ExecutionState.FAILED
    event = ending_event(state, '"w"', 0, error)
    settlement = finish(delivery.key, delivery.epoch, state, TTL_MS, Ending("w", error).pack(), event)
    return counted(settlement, kind, seconds=0.25, waited_ms=40)


async def settle(
    ledger_client: LedgerClient, worker: str, *keys: str, function: str = "f", fails: bool = False
) -> None:
    runs = [await ledger_client.start(worker, key, function=function) for key in keys]
    settlements = [failed(run) if fails else counted(completed(run)) for run in runs]
    assert set(await ledger_client.settle(*settlements)) == {SettleResult.DONE}


async def test_a_failure_has_an_entry_with_all_that_is_known(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hold(ledger, NOON + 500)
    run = await ledger_client.start(worker, "k")
    hold(ledger, NOON + 900)
    await ledger_client.settle(failed(run, error="ValueError: no"))
    (found,) = await history(ledger)
    assert (found.key, found.function, found.ending, found.attempt) == ("k", "f", FAILED, 1)
    assert found.ended_at.timestamp() * 1000 == NOON + 900
    assert found.started_at is not None
    assert found.started_at.timestamp() * 1000 == NOON + 500
    assert (found.run_time, found.error, found.left_out) == (timedelta(seconds=0.25), "ValueError: no", 0)
    assert found.worker is not None
    assert found.is_failure


async def test_a_retried_run_and_a_chain_that_goes_on_have_entries(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    first = await ledger_client.start(worker, "a")
    retried = as_retry(reschedule("a", first.epoch, attempt=2, delay_ms=1000), 1, "w", "KeyError: 'x'")
    await ledger_client.settle(counted(retried, EndingKind.RETRIED))
    second = await ledger_client.start(worker, "b")
    next_run = reschedule("b", second.epoch, attempt=1, delay_ms=1000)
    goes_on = as_going_on(next_run, Ending("w", "OSError: gone"), ExecutionState.FAILED, '"w"', 0)
    await ledger_client.settle(counted(goes_on, FAILED))
    assert [(run.key, run.ending, run.error) for run in await history(ledger)] == [
        ("b", FAILED, "OSError: gone"),
        ("a", EndingKind.RETRIED, "KeyError: 'x'"),
    ]


async def test_endings_that_no_worker_settles_have_entries(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire("f")
    await ledger_client.add("waits")
    await ledger.tasks.cancel("waits")
    run = await ledger_client.start(worker, "unknown", function="g")
    await ledger_client.settle(unknown_function("unknown", run.epoch))
    event = '{"type":"state","state":"failed","error":"TaskNotRegistered: g"}'
    assert await ledger.tasks.fail_unknown("g", Ending("w", "TaskNotRegistered: g"), event) == 1
    await ledger_client.start(worker, "lost")
    ledger_client.bury(worker)
    found = {run.key: run for run in await history(ledger)}
    assert {key: run.ending.value for key, run in found.items()} == {
        "waits": "cancelled",
        "unknown": "unknown_function",
        "lost": "lost",
    }
    assert found["waits"].worker is None
    assert found["waits"].started_at is None
    assert found["unknown"].error == "TaskNotRegistered: g"
    assert found["lost"].worker is not None
    assert found["lost"].run_time is None


async def test_a_buried_task_has_an_entry_with_its_losses(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire_with({"f": 1})
    await ledger_client.start(worker, "k")
    ledger_client.bury(worker)
    (found,) = await history(ledger_client.ledger)
    assert found.ending is EndingKind.BURIED
    assert "losses so far: 1" in (found.error or "")


async def test_what_is_refused_or_repeated_has_no_entry(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    await ledger_client.settle(failed(Delivery("k", b"", run.epoch - 1)), failed(run), failed(run))
    await ledger_client.settle(failed(run))
    assert [found.key for found in await history(ledger_client.ledger)] == ["k"]


async def test_the_fleet_has_a_sample_of_the_successes(ledger_client: LedgerClient) -> None:
    """Whoever settles: the bound is that of the docket, not of a worker."""
    ledger, workers = ledger_client.ledger, [await ledger_client.hire() for _ in range(3)]
    numbers = itertools.count()

    async def some(seconds: int) -> int:
        """Settles twelve runs at that time, each in a batch of its own. Returns the new entries."""
        hold(ledger, NOON + seconds * SECOND)
        before = len(await history(ledger))
        for _ in range(4):
            for worker in workers:
                await settle(ledger_client, worker, f"k{next(numbers)}")
        return len(await history(ledger)) - before

    assert await some(0) == 5
    assert await some(5) == 0
    assert await some(6) == 1
    assert await some(59) == 8
    # 14 entries of 48 runs: each of the last eight says what the minute has left out before it.
    assert [run.left_out for run in (await history(ledger))[:2]] == [36 + 7 - 13, 36 + 6 - 12]
    assert await some(60) == 5
    assert (await history(ledger))[4].left_out == 0


async def test_one_batch_has_one_sample_of_each_function(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire("f", "g")
    hold(ledger, NOON)
    runs = [await ledger_client.start(worker, f"{name}{i}", function=name) for i in range(4) for name in "fg"]
    await ledger_client.settle(*(counted(completed(run)) for run in runs))
    assert sorted(run.function for run in await history(ledger)) == ["f", "g"]


async def test_a_function_that_fails_often_does_not_push_out_the_others(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire("bad", "good")
    hold(ledger, NOON)
    await settle(ledger_client, worker, *(f"bad {i}" for i in range(60)), function="bad", fails=True)
    await settle(ledger_client, worker, "good", function="good", fails=True)
    await settle(ledger_client, worker, "a success", function="bad")
    found = await history(ledger)
    assert [run.key for run in found if run.function == "bad" and run.is_failure] == [
        f"bad {i}" for i in range(19, -1, -1)
    ]
    assert {"good", "a success"} <= {run.key for run in found}
    hold(ledger, NOON + 30 * SECOND)
    await settle(ledger_client, worker, *(f"later {i}" for i in range(60)), function="bad", fails=True)
    later = [run for run in await history(ledger) if run.key.startswith("later")]
    assert [run.key for run in later] == [f"later {i}" for i in range(14, -1, -1)]
    assert {run.left_out for run in later} == {40}


async def test_functions_without_counts_of_their_own_share_a_bound(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hold(ledger, NOON)
    names = ["n" * 300 + str(i) for i in range(3)]
    runs = [await ledger_client.start(worker, f"{i} {name[-1]}", function=name) for i in range(12) for name in names]
    await ledger_client.settle(*(failed(run) for run in runs))
    found = await history(ledger)
    assert len(found) == 20
    assert {run.function for run in found} <= set(names)
    rows = [row async for row in ledger.statistics.rows(NOON // MINUTE, NOON // MINUTE)]
    total = Row()
    for row in rows:
        total.add(row.row)
    assert [row.function for row in rows] == [OTHERS]
    assert total.endings == {FAILED: 36}


async def test_a_docket_that_keeps_nothing_has_no_history(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    ledger.ttl_ms = 0
    await settle(ledger_client, worker, "ok")
    await settle(ledger_client, worker, "bad", fails=True)
    await ledger_client.add("cancelled")
    await ledger.tasks.cancel("cancelled")
    await ledger_client.start(worker, "lost")
    ledger_client.bury(worker)
    assert await history(ledger) == []
    assert not ledger_client.client.exists(*(ledger.keys.key(f"history-{name}") for name in ("failures", "samples")))


async def test_texts_live_no_longer_than_letters(ledger_client: LedgerClient) -> None:
    ledger, client = ledger_client.ledger, ledger_client.client
    worker = await ledger_client.hire("f", "short", "off")
    client.hset(ledger.keys.key("keep-failures"), mapping={"short": 1000, "off": 0})
    failures, samples = (ledger.keys.key(name) for name in ("history-failures", "history-samples"))
    await settle(ledger_client, worker, "ok")
    for function in ("f", "short", "off"):
        await settle(ledger_client, worker, function, function=function, fails=True)
    assert {run.key: run.error for run in await history(ledger, failures=True)} == {
        "f": "ValueError: no",
        "short": None,
        "off": None,
    }
    assert 6 * DAY < client.pttl(failures) <= 7 * DAY
    assert 0.9 * DAY < client.pttl(samples) <= DAY
    for keep, age in (Keep(timedelta(days=30)), 7), (Keep(timedelta(days=2)), 2), (NOTHING, 1):
        ledger.keep_ms = keep.age_ms
        await settle(ledger_client, worker, f"kept {age}", fails=True)
        newest = (await history(ledger, failures=True))[0]
        assert (newest.error is None) == (keep is NOTHING)
        assert (age - 0.1) * DAY < client.pttl(failures) <= age * DAY


async def test_entries_that_are_too_old_are_deleted(ledger_client: LedgerClient) -> None:
    ledger, client = ledger_client.ledger, ledger_client.client
    worker = await ledger_client.hire()
    now_ms = int((await ledger.queries.census()).server_ms)
    failures, samples = (ledger.keys.key(name) for name in ("history-failures", "history-samples"))
    for age in (9, 6.5, 1.5, 0.5):
        for stream in (failures, samples):
            client.xadd(stream, {"r": b"old"}, id=f"{int(now_ms - age * DAY)}-0")
    await settle(ledger_client, worker, "new", fails=True)
    assert await ledger.history.trim() == 1 + 3
    assert (client.xlen(failures), client.xlen(samples)) == (4, 1)
    ledger.keep_ms = 2 * DAY
    assert await ledger.history.trim() == 1
    ledger.keep_ms = 0
    assert await ledger.history.trim() == 1
    assert [run.key for run in await history(ledger)] == ["new"]
    client.set(failures, "somebody else's")
    assert await ledger.history.trim() == 0


async def test_the_number_of_entries_is_bounded(ledger_client: LedgerClient) -> None:
    ledger, client, worker = ledger_client.ledger, ledger_client.client, await ledger_client.hire()
    failures = ledger.keys.key("history-failures")
    with client.pipeline(transaction=False) as pipe:
        for _ in range(11_000):
            pipe.xadd(failures, {"r": b"x" * 100})
        pipe.execute()
    await settle(ledger_client, worker, "k", fails=True)
    assert 10_000 <= client.xlen(failures) < 10_100
    assert [run.key for run in await history(ledger)] == ["k"]


@pytest.mark.parametrize("name", ["history-failures", "history-samples"])
@pytest.mark.parametrize("damage", ["another type", "the last id"])
async def test_a_damaged_history_stops_no_task(ledger_client: LedgerClient, name: str, damage: str) -> None:
    ledger, client, worker = ledger_client.ledger, ledger_client.client, await ledger_client.hire()
    hold(ledger, NOON)
    key = ledger.keys.key(name)
    if damage == "another type":
        client.set(key, "somebody else's")
    else:
        client.xadd(key, {"r": b"x"}, id="18446744073709551615-18446744073709551615")
    await settle(ledger_client, worker, "ok")
    await settle(ledger_client, worker, "bad", fails=True)
    await ledger_client.add("cancelled")
    assert await ledger.tasks.cancel("cancelled") == 1
    lost = await ledger_client.start(worker, "lost")
    ledger_client.bury(worker)
    (again,) = await ledger_client.take(await ledger_client.hire())
    assert again.key == lost.key
    await ledger.history.trim()
    row = Row()
    async for one in ledger.statistics.rows(NOON // MINUTE, NOON // MINUTE):
        row.add(one.row)
    assert row.endings.get(EndingKind.SUCCEEDED) == row.endings.get(FAILED) == 1
    if damage != "another type":
        client.delete(key)
    await settle(ledger_client, await ledger_client.hire(), "again", fails=name == "history-failures")
    assert "again" in {run.key for run in await history(ledger)}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xc1",
        b"text",
        pack_for_script([1, 2]),
        pack_for_script([1, 99, *[0] * 11]),
        pack_for_script([1, 2, *[b"x"] * 11]),
    ],
)
async def test_damaged_entries_are_left_out(ledger_client: LedgerClient, damage: bytes) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    ledger_client.client.xadd(ledger.keys.key("history-failures"), {"r": damage})
    ledger_client.client.xadd(ledger.keys.key("history-samples"), {"other": b"x"})
    await settle(ledger_client, worker, "k", fails=True)
    assert [run.key for run in await history(ledger)] == ["k"]


def add_entry(ledger_client: LedgerClient, kind: int, key: str, id: str) -> None:
    entry = [1, kind, 5.0, key.encode(), b"f", b"w~1", 1, 7, 1.0, 2.0, 0.5, b"", 0]
    name = "history-samples" if kind == 1 else "history-failures"
    ledger_client.client.xadd(ledger_client.ledger.keys.key(name), {"r": pack_for_script(entry)}, id=id)


async def test_both_streams_are_read_in_pages_in_the_order_of_time(
    ledger_client: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_client.ledger
    monkeypatch.setattr(stored, "PAGE", 2)
    keys = [f"k{i}" for i in range(10)]
    for number, key in enumerate(keys):
        add_entry(ledger_client, 1 + number % 2, key, f"{10 + number}-0")
    found = await history(ledger)
    assert [run.key for run in found] == keys[::-1]
    for number, run in enumerate(found):
        assert [one.key for one in await history(ledger, run.id)] == keys[::-1][number + 1 :]
    assert [run.key for run in await history(ledger, failures=True)] == keys[::-1][::2]


async def test_entries_of_both_streams_with_the_same_id_are_each_read_once(ledger_client: LedgerClient) -> None:
    ledger = ledger_client.ledger
    for kind in (1, 2):
        add_entry(ledger_client, kind, "k", "100-0")
    newest, oldest = await history(ledger)
    assert [run.id for run in await history(ledger, newest.id)] == [oldest.id]
    assert await history(ledger, oldest.id) == []


async def test_long_texts_are_cut_between_characters(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    run = await ledger_client.start(worker, "ключ" * 128)
    await ledger_client.settle(failed(run, error="Fehler: " + "ü" * 3000))
    (found,) = await history(ledger)
    assert found.key.startswith("ключ")
    assert found.key.endswith("…")
    assert found.error is not None
    assert found.error.startswith("Fehler: ü")
    assert found.error.endswith("ü…")
    assert len(found.error.encode()) <= 500
    assert len(found.key.encode()) <= 512
