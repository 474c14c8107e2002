"""Endings are counted once, by the script that accepts them, in minutes that become hours."""

from __future__ import annotations

from typing import Any

import pytest

from docket.codec.packing import pack_for_script
from docket.ledger import Delivery, Ledger, Settlement, SettleResult, requeue, reschedule, unknown_function
from docket.ledger.endings import Ending
from docket.ledger.statistics import OTHERS, Row, cell_of, cell_without_times
from docket.model.histograms import BOUNDS, BUCKETS, Histogram
from docket.model.states import KIND_NUMBERS, EndingKind, ExecutionState, Measures
from docket.storage.schema import statistics as counts

from .ledger_client import LedgerClient, completed, ended, new_task

MINUTE, HOUR = 60_000, 3_600_000
# A whole hour.
NOON = 1_800_000 * 1_000_000 // HOUR * HOUR


def counted(
    settlement: Settlement, kind: EndingKind = EndingKind.SUCCEEDED, seconds: float = 0.02, waited_ms: float = 3.0
) -> Settlement:
    settlement.cell, settlement.measures = cell_of(KIND_NUMBERS[kind], seconds, waited_ms), Measures(seconds)
    return settlement


async def totals(ledger: Ledger, first: int, last: int, *, by_hours: bool = False) -> dict[str, Row]:
    found: dict[str, Row] = {}
    async for stored in ledger.statistics.rows(first, last, by_hours=by_hours):
        found.setdefault(stored.function, Row()).add(stored.row)
    return found


async def endings(ledger: Ledger, **options: Any) -> dict[str, dict[str, int]]:
    """All that the minutes of today have."""
    now_ms = (await ledger.queries.census()).server_ms
    found = await totals(ledger, int(now_ms // MINUTE) - 5, int(now_ms // MINUTE), **options)
    return {name: {kind.value: number for kind, number in row.endings.items()} for name, row in found.items()}


def hold(ledger: Ledger, ms: int) -> None:
    async def nothing() -> bool:
        return False

    ledger.server.clock.hold(ms, nothing)


async def test_an_accepted_settlement_is_counted_with_its_times(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    runs = [await ledger_client.start(worker, key) for key in ("a", "b", "c")]
    await ledger_client.settle(
        counted(completed(runs[0]), seconds=0.02, waited_ms=3),
        counted(completed(runs[1]), seconds=0.02, waited_ms=5_000),
        counted(ended(runs[2], ExecutionState.FAILED), EndingKind.FAILED, seconds=7.5, waited_ms=-4),
    )
    now_ms = (await ledger.queries.census()).server_ms
    row = (await totals(ledger, int(now_ms // MINUTE) - 1, int(now_ms // MINUTE)))["f"]
    assert row.endings == {EndingKind.SUCCEEDED: 2, EndingKind.FAILED: 1}
    assert row.measures.run_seconds == pytest.approx(7.54)
    assert Histogram(row.succeeded).count == 2
    assert Histogram(row.others).count == 1
    assert BOUNDS[next(iter(row.others)) - 1] <= 7.5 < BOUNDS[next(iter(row.others))]
    assert row.waiting_time.count == 3
    assert 0 in row.waits


async def test_what_is_refused_or_repeated_is_not_counted(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    stale = Delivery("k", b"", run.epoch - 1)
    both = counted(completed(run)), counted(completed(run))
    assert await ledger_client.settle(counted(completed(stale)), *both) == [
        SettleResult.LOST,
        SettleResult.DONE,
        SettleResult.LOST,
    ]
    assert await ledger_client.settle(counted(completed(run))) == [SettleResult.LOST]
    assert await endings(ledger_client.ledger) == {"f": {"succeeded": 1}}


async def test_a_cancel_that_came_too_late_counts_as_cancelled(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    retried, given_back = await ledger_client.start(worker, "a"), await ledger_client.start(worker, "b")
    for key in ("a", "b"):
        assert await ledger_client.ledger.tasks.cancel(key) == 2
    answers = await ledger_client.settle(
        counted(reschedule("a", retried.epoch, attempt=2), EndingKind.RETRIED), requeue("b", given_back.epoch)
    )
    assert answers == [SettleResult.CANCELLED] * 2
    assert await endings(ledger_client.ledger) == {"f": {"cancelled": 2}}


async def test_endings_that_no_worker_settles_are_counted(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire("f", "g")
    await ledger_client.add("waits", "is cleared", function="f")
    await ledger.tasks.cancel("waits")
    assert await ledger.tasks.clear() == 1
    lost = await ledger_client.start(worker, "lost", function="g")
    ledger_client.bury(worker)
    assert (await endings(ledger)) == {"f": {"cancelled": 2}, "g": {"lost": 1}}
    (again,) = await ledger_client.take(await ledger_client.hire("g"))
    assert again.key == lost.key


async def test_a_buried_task_is_counted_as_buried(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire_with({"f": 1})
    await ledger_client.start(worker, "k")
    ledger_client.bury(worker)
    assert await endings(ledger_client.ledger) == {"f": {"buried": 1}}


async def test_a_task_whose_function_nobody_knows_is_counted(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire("other")
    run = await ledger_client.start(worker, "k", function="f")
    await ledger_client.settle(unknown_function("k", run.epoch))
    assert await ledger.tasks.fail_unknown("f", Ending("w"), "{}") == 1
    assert await endings(ledger) == {"f": {"unknown_function": 1}}


async def settle_one(ledger_client: LedgerClient, worker: str, key: str, function: str = "f") -> None:
    run = await ledger_client.start(worker, key, function=function)
    assert await ledger_client.settle(counted(completed(run))) == [SettleResult.DONE]


async def test_minutes_become_hours_and_each_count_is_there_once(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hour = NOON // HOUR
    for minute in (0, 1, 59):
        hold(ledger, NOON + minute * MINUTE)
        await settle_one(ledger_client, worker, f"k{minute}")
    hold(ledger, NOON + HOUR)
    await settle_one(ledger_client, worker, "next hour")
    for left in (2, 1, 0, 0, 0):
        before = (await totals(ledger, hour, hour, by_hours=True))["f"].endings
        assert before == {EndingKind.SUCCEEDED: 3}
        assert await ledger.statistics.fold_minute() == left
    # The minute that is not over is not folded, and an hour has its minutes from the beginning.
    assert (await totals(ledger, hour, hour + 1, by_hours=True))["f"].endings == {EndingKind.SUCCEEDED: 4}
    assert (await totals(ledger, hour * 60, hour * 60 + 60))["f"].endings == {EndingKind.SUCCEEDED: 4}


async def test_a_count_in_a_minute_that_is_folded_reaches_the_hour(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hour = NOON // HOUR
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "in time")
    hold(ledger, NOON + MINUTE)
    assert await ledger.statistics.fold_minute() == 0
    # The server's clock was set back.
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "late")
    await settle_one(ledger_client, worker, "late, too", function="g")
    hold(ledger, NOON + MINUTE)
    assert await ledger.statistics.fold_minute() == 0
    for unit in ({"by_hours": True}, {}):
        number = hour if unit else hour * 60
        found = await totals(ledger, number, number, **unit)
        assert {name: row.endings for name, row in found.items()} == {
            "f": {EndingKind.SUCCEEDED: 2},
            "g": {EndingKind.SUCCEEDED: 1},
        }


async def test_a_minute_that_has_expired_is_folded_again_without_its_earlier_counts(
    ledger_client: LedgerClient,
) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hour = NOON // HOUR
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "in time")
    hold(ledger, NOON + MINUTE)
    await ledger.statistics.fold_minute()
    ledger_client.client.delete(ledger.keys.named("stats-minute", str(hour * 60)))
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "late")
    hold(ledger, NOON + MINUTE)
    await ledger.statistics.fold_minute()
    assert (await totals(ledger, hour, hour, by_hours=True))["f"].endings == {EndingKind.SUCCEEDED: 2}


async def test_lifetimes(ledger_client: LedgerClient) -> None:
    ledger, worker, client = ledger_client.ledger, await ledger_client.hire(), ledger_client.client
    hour = NOON // HOUR
    minute_key = ledger.keys.named("stats-minute", str(hour * 60))
    hour_key = ledger.keys.named("stats-hour", str(hour))
    day = 86_400
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "k")
    # A minute that nobody folds outlives a fleet that is away for a month.
    assert 30 * day < client.ttl(minute_key) <= 31 * day
    hold(ledger, NOON + MINUTE)
    await ledger.statistics.fold_minute()
    assert 2.9 * 3600 < client.ttl(minute_key) <= 3 * 3600
    assert 29 * day < client.ttl(hour_key) <= 30 * day
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "late")
    assert client.ttl(minute_key) <= 3 * 3600
    assert not client.exists(ledger.keys.key("stats-open"))


async def test_functions_beyond_the_most_are_counted_together(ledger_client: LedgerClient) -> None:
    ledger, hour = ledger_client.ledger, NOON // HOUR
    names = [f"f{number}" for number in range(counts.MOST_COUNTED)]
    worker = await ledger_client.hire(*names, "one too many")
    hold(ledger, NOON)
    await ledger.tasks.enqueue([new_task(f"k{name}", function=name) for name in names[:200]])
    await ledger.tasks.enqueue([new_task(f"k{name}", function=name) for name in names[200:]])
    await settle_all(ledger_client, worker)
    # A name that is too long, a function that no worker knows, and one that comes too late.
    without_rows = ("n" * 257, "unknown", "one too many")
    for minute in (0, 1):
        hold(ledger, NOON + minute * MINUTE)
        await ledger.tasks.enqueue([new_task(f"{name} {minute}", function=name) for name in ("f0", *without_rows)])
        await settle_all(ledger_client, worker)
    hold(ledger, NOON + 2 * MINUTE)
    for left in (1, 0):
        assert await ledger.statistics.fold_minute() == left
    # Counts that come late.
    hold(ledger, NOON)
    await ledger.tasks.enqueue([new_task(f"late {name}", function=name) for name in ("f1", *without_rows)])
    await settle_all(ledger_client, worker)
    by_hours = await totals(ledger, hour, hour, by_hours=True)
    for found in (by_hours, await totals(ledger, hour * 60, hour * 60 + 1)):
        assert {name: row.endings[EndingKind.SUCCEEDED] for name, row in found.items()} == {
            **dict.fromkeys(names, 1),
            "f0": 3,
            "f1": 2,
            OTHERS: 9,
        }


async def test_generated_names_leave_room_for_functions_that_workers_know(ledger_client: LedgerClient) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire("real")
    hold(ledger, NOON)
    keys = [f"k{number}" for number in range(counts.MOST_UNKNOWN_COUNTED + 5)]
    await ledger.tasks.enqueue([new_task(key, function=key) for key in keys])
    for key in keys:
        await ledger.tasks.cancel(key)
    await settle_one(ledger_client, worker, "k", function="real")
    found = await totals(ledger, NOON // MINUTE, NOON // MINUTE)
    assert found["real"].endings == {EndingKind.SUCCEEDED: 1}
    assert found[OTHERS].endings == {EndingKind.CANCELLED: 5}


async def test_a_function_that_is_not_counted_for_a_month_makes_room(ledger_client: LedgerClient) -> None:
    ledger = ledger_client.ledger
    hold(ledger, NOON)
    for day in (0, 31):
        hold(ledger, NOON + day * 24 * HOUR)
        for number in range(counts.MOST_UNKNOWN_COUNTED):
            await ledger_client.add(f"k{number}", function=f"day {day} {number}")
        assert await ledger.tasks.clear() == counts.MOST_UNKNOWN_COUNTED
        found = await totals(ledger, (NOON + day * 24 * HOUR) // MINUTE, (NOON + day * 24 * HOUR) // MINUTE)
        assert OTHERS not in found
        assert len(found) == counts.MOST_UNKNOWN_COUNTED


async def test_without_a_leader_the_open_minutes_stay_few(ledger_client: LedgerClient) -> None:
    ledger, worker, minutes = ledger_client.ledger, await ledger_client.hire(), 130
    for minute in range(minutes):
        hold(ledger, NOON + minute * MINUTE)
        await settle_one(ledger_client, worker, f"k{minute}")
    assert ledger_client.client.zcard(ledger.keys.key("stats-open")) == 120
    for unit, first in ({"by_hours": True}, NOON // HOUR), ({}, NOON // MINUTE):
        found = await totals(ledger, first, first + minutes, **unit)
        assert found["f"].endings == {EndingKind.SUCCEEDED: minutes}


@pytest.mark.parametrize("suffix", ["stats-minute", "stats-hour", "stats-open", "stats-functions"])
async def test_statistics_that_somebody_else_has_overwritten_stop_no_task(
    ledger_client: LedgerClient, suffix: str
) -> None:
    ledger, worker, client = ledger_client.ledger, await ledger_client.hire(), ledger_client.client
    hold(ledger, NOON)
    numbers = {"stats-minute": NOON // MINUTE, "stats-hour": NOON // HOUR}
    key = ledger.keys.named(suffix, str(numbers[suffix])) if suffix in numbers else ledger.keys.key(suffix)
    await settle_one(ledger_client, worker, "before")
    hold(ledger, NOON + MINUTE)
    client.set(key, "somebody else's")
    await ledger.statistics.fold_minute()
    await settle_one(ledger_client, worker, "another minute")
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "the same minute")
    await ledger_client.add("cancelled")
    assert await ledger.tasks.cancel("cancelled") == 1
    lost = await ledger_client.start(worker, "lost")
    ledger_client.bury(worker)
    (again,) = await ledger_client.take(await ledger_client.hire())
    assert again.key == lost.key
    hold(ledger, NOON + 2 * MINUTE)
    while await ledger.statistics.fold_minute():
        pass
    ledger_client.checked_state()


async def settle_all(ledger_client: LedgerClient, worker: str) -> None:
    while runs := await ledger_client.take(worker, 500):
        answers = await ledger_client.settle(*(counted(completed(run)) for run in runs))
        assert set(answers) == {SettleResult.DONE}


@pytest.mark.parametrize("name", ["m", "o", "f", "", "a:b%c", "\udcff", "(others)", "é" * 128, "x\0y\n"])
async def test_any_name_of_a_function_has_its_own_row(ledger_client: LedgerClient, name: str) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hold(ledger, NOON)
    await settle_one(ledger_client, worker, "k", function=name)
    await settle_one(ledger_client, worker, "other", function="plain")
    found = await totals(ledger, NOON // MINUTE, NOON // MINUTE)
    assert {function: row.endings for function, row in found.items()} == {
        name: {EndingKind.SUCCEEDED: 1},
        "plain": {EndingKind.SUCCEEDED: 1},
    }
    only = [stored async for stored in ledger.statistics.rows(NOON // MINUTE, NOON // MINUTE, function=name)]
    assert [stored.function for stored in only] == [name]


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"text", pack_for_script([1, 2]), pack_for_script({17: b"many"})])
async def test_damaged_counts_do_not_stop_a_settlement(ledger_client: LedgerClient, damage: bytes) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    hold(ledger, NOON)
    key = ledger.keys.named("stats-minute", str(NOON // MINUTE))
    ledger_client.client.hset(key, "ff", damage)
    await settle_one(ledger_client, worker, "k")
    assert (await totals(ledger, NOON // MINUTE, NOON // MINUTE))["f"].endings == {EndingKind.SUCCEEDED: 1}
    ledger_client.client.hset(key, "ff", damage)
    hold(ledger, NOON + MINUTE)
    await ledger.statistics.fold_minute()
    await totals(ledger, NOON // HOUR, NOON // HOUR, by_hours=True)


async def test_a_long_range_is_read_in_pages(ledger_client: LedgerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, worker = ledger_client.ledger, await ledger_client.hire()
    monkeypatch.setattr("docket.ledger.statistics._MOST_ROWS", 2)
    for minute in range(5):
        hold(ledger, NOON + minute * MINUTE)
        await settle_one(ledger_client, worker, f"k{minute}")
    found = [stored.number async for stored in ledger.statistics.rows(NOON // MINUTE, NOON // MINUTE + 59)]
    assert found == [NOON // MINUTE + minute for minute in range(5)]


def test_every_cell_has_its_own_kind_and_buckets() -> None:
    assert BUCKETS <= counts.NO_TIME
    assert list(BOUNDS) == sorted(BOUNDS)
    for bucket, bound in enumerate(BOUNDS):
        cell = cell_of(3, bound, bound * 1000)
        assert divmod(cell, counts.KIND_CELL) == (3, (bucket + 1) * 64 + bucket + 1)
        below = cell_of(3, bound * 0.999, bound * 999)
        assert divmod(below, counts.KIND_CELL) == (3, bucket * 64 + bucket)
    assert cell_without_times(12) == 12 * counts.KIND_CELL + 63 * 64 + 63


def test_quantiles_are_inside_their_bucket() -> None:
    times = [0.01 * 1.07**number for number in range(100)]
    row: dict[int, int] = {}
    for seconds in times:
        bucket = cell_of(1, seconds, 0) // 64 % 64
        row[bucket] = row.get(bucket, 0) + 1
    histogram = Histogram(row)
    for share in (0.01, 0.5, 0.95, 0.99):
        found = histogram.quantile(share)
        assert found is not None
        assert found == pytest.approx(times[min(int(share * 100), 99)], rel=0.15)
    assert Histogram().p50 is None
    assert Histogram({0: 5}).quantile(0) == 0
    assert Histogram({BUCKETS - 1: 1}).p99 == BOUNDS[-1]
    with pytest.raises(ValueError, match="between 0 and 1"):
        histogram.quantile(95)
