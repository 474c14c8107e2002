"""Tasks that run by the calendar."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from docket import Cron, Docket, ExecutionState
from docket.testing import Clock

from .waiting import ends, run_everything, running, waits, worker_for

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


async def slots(docket: Docket, expression: str, start: datetime, count: int, tz: tzinfo = UTC) -> list[datetime]:
    """When the task of this expression runs first, seeded by a worker that starts then."""
    times: list[datetime] = []

    async def tick(cron: Cron = Cron(expression, tz=tz)) -> None:
        times.append(docket.now())
        if len(times) == count:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=start):
        await run_everything(docket)
    return [time.replace(microsecond=0) for time in times]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2026-01-14T10:18", "2026-01-14T10:19", "2026-01-14T10:20"]),
        ("*/15 * * * *", ["2026-01-14T10:30", "2026-01-14T10:45", "2026-01-14T11:00"]),
        ("5,35 * * * *", ["2026-01-14T10:35", "2026-01-14T11:05", "2026-01-14T11:35"]),
        ("0 9-11 * * *", ["2026-01-14T11:00", "2026-01-15T09:00", "2026-01-15T10:00"]),
        ("30 4 * * 1", ["2026-01-19T04:30", "2026-01-26T04:30", "2026-02-02T04:30"]),
        ("30 4 * * mon", ["2026-01-19T04:30", "2026-01-26T04:30", "2026-02-02T04:30"]),
        ("0 0 * * 0", ["2026-01-18T00:00", "2026-01-25T00:00", "2026-02-01T00:00"]),
        ("0 0 * * 7", ["2026-01-18T00:00", "2026-01-25T00:00", "2026-02-01T00:00"]),
        ("0 0 31 * *", ["2026-01-31T00:00", "2026-03-31T00:00", "2026-05-31T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        ("0 12 1 */3 *", ["2026-04-01T12:00", "2026-07-01T12:00", "2026-10-01T12:00"]),
        ("0 0 20 * 5", ["2026-01-16T00:00", "2026-01-20T00:00", "2026-01-23T00:00"]),
        ("0 0 1 jan,jul *", ["2026-07-01T00:00", "2027-01-01T00:00", "2027-07-01T00:00"]),
        ("@hourly", ["2026-01-14T11:00", "2026-01-14T12:00", "2026-01-14T13:00"]),
        ("@daily", ["2026-01-15T00:00", "2026-01-16T00:00", "2026-01-17T00:00"]),
        ("@midnight", ["2026-01-15T00:00", "2026-01-16T00:00", "2026-01-17T00:00"]),
        ("@weekly", ["2026-01-18T00:00", "2026-01-25T00:00", "2026-02-01T00:00"]),
        ("@monthly", ["2026-02-01T00:00", "2026-03-01T00:00", "2026-04-01T00:00"]),
        ("@yearly", ["2027-01-01T00:00", "2028-01-01T00:00", "2029-01-01T00:00"]),
        ("@annually", ["2027-01-01T00:00", "2028-01-01T00:00", "2029-01-01T00:00"]),
    ],
)
async def test_a_task_runs_at_the_times_of_its_expression(docket: Docket, expression: str, expected: list[str]) -> None:
    start = datetime(2026, 1, 14, 10, 17, 30, tzinfo=UTC)

    seen = await slots(docket, expression, start, 3)

    assert [time.isoformat()[:16] for time in seen] == expected


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "* 25 * * *", "@fortnightly", "a b c d e"])
def test_an_expression_that_means_nothing_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the wording is free
        Cron(expression)


async def test_the_times_are_those_of_the_zones_clocks(docket: Docket) -> None:
    start = datetime(2026, 1, 14, 10, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 2, NEW_YORK)

    assert seen == [datetime(2026, 1, 14, 14, 0, tzinfo=UTC), datetime(2026, 1, 15, 14, 0, tzinfo=UTC)]


async def test_a_fixed_offset_is_a_zone_too(docket: Docket) -> None:
    start = datetime(2026, 1, 14, 0, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 1, timezone(timedelta(hours=5, minutes=30)))

    assert seen == [datetime(2026, 1, 14, 3, 30, tzinfo=UTC)]


async def test_nine_in_the_morning_stays_nine_when_summer_time_begins(docket: Docket) -> None:
    start = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 3, BERLIN)

    assert [time.isoformat()[:16] for time in seen] == ["2026-03-28T08:00", "2026-03-29T07:00", "2026-03-30T07:00"]


async def test_nine_in_the_morning_stays_nine_when_summer_time_ends(docket: Docket) -> None:
    start = datetime(2026, 10, 23, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 3, BERLIN)

    assert [time.isoformat()[:16] for time in seen] == ["2026-10-24T07:00", "2026-10-25T08:00", "2026-10-26T08:00"]


async def test_an_hour_that_comes_twice_is_one_slot(docket: Docket) -> None:
    start = datetime(2026, 10, 23, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "30 2 * * *", start, 3, BERLIN)

    assert [time.astimezone(BERLIN).isoformat()[:16] for time in seen] == [
        "2026-10-24T02:30",
        "2026-10-25T02:30",
        "2026-10-26T02:30",
    ]


async def test_an_hour_that_is_left_out_does_not_stop_the_days_after(docket: Docket) -> None:
    start = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "30 2 * * *", start, 4, BERLIN)

    local = [time.astimezone(BERLIN).isoformat()[:16] for time in seen]
    assert local[0] == "2026-03-28T02:30"
    assert "2026-03-30T02:30" in local
    assert len({text[:10] for text in local}) == 4


async def test_every_hour_is_every_hour_also_when_summer_time_ends(docket: Docket) -> None:
    start = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)

    seen = await slots(docket, "0 * * * *", start, 5, BERLIN)

    assert [time.isoformat()[11:16] for time in seen] == ["23:00", "00:00", "01:00", "02:00", "03:00"]


async def test_every_hour_is_every_hour_also_when_summer_time_begins(docket: Docket) -> None:
    start = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)

    seen = await slots(docket, "0 * * * *", start, 5, BERLIN)

    assert [time.isoformat()[11:16] for time in seen] == ["23:00", "00:00", "01:00", "02:00", "03:00"]


async def test_a_worker_that_starts_seeds_the_task_for_its_slot_and_does_not_run_it(docket: Docket) -> None:
    ran: list[int] = []

    async def tick(cron: Cron = Cron("0 0 1 1 *")) -> None:
        ran.append(1)

    docket.register(tick)

    async with worker_for(docket) as worker, running(worker):
        coming = await waits(docket, "tick")

    assert ran == []
    assert (coming.when.month, coming.when.day, coming.when.hour) == (1, 1, 0)
    assert coming.when > datetime.now(UTC)


async def test_a_task_that_is_not_automatic_is_not_seeded(docket: Docket) -> None:
    ran: list[int] = []

    async def tick(cron: Cron = Cron("* * * * *", automatic=False)) -> None:
        ran.append(1)

    docket.register(tick)
    await run_everything(docket)

    assert ran == []
    assert await docket.get_execution("tick") is None


async def test_a_task_added_by_hand_runs_and_then_keeps_to_its_slots(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *", automatic=False)) -> None:
        times.append(docket.now())
        if len(times) == 2:
            cron.cancel()

    with Clock(docket, at=datetime(2026, 1, 14, 10, 17, tzinfo=UTC)):
        await docket.add(tick, key="k")()
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:17", "11:00"]


async def test_a_run_that_outlasts_its_slot_is_followed_by_that_slot(docket: Docket) -> None:
    times: list[datetime] = []

    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)) as clock:

        async def tick(cron: Cron = Cron("*/5 * * * *")) -> None:
            times.append(docket.now())
            if len(times) == 1:
                clock.set(datetime(2026, 1, 14, 10, 7, tzinfo=UTC))
            if len(times) == 3:
                cron.cancel()

        docket.register(tick)
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "10:07", "10:10"]


async def test_a_failing_task_keeps_to_its_slots(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *")) -> None:
        times.append(docket.now())
        if len(times) == 3:
            cron.cancel()
        raise ValueError("smoke")

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)):
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "11:00", "12:00"]


async def test_a_task_may_leave_its_slots_for_once(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *")) -> None:
        times.append(docket.now())
        if len(times) == 1:
            cron.after(timedelta(minutes=10))
        if len(times) == 3:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)):
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "10:10", "11:00"]


async def test_a_cancelled_task_ends_completed(docket: Docket) -> None:
    async def tick(cron: Cron = Cron("0 * * * *", automatic=False)) -> None:
        await asyncio.sleep(0)
        cron.cancel()

    execution = await docket.add(tick, key="k")()
    async with worker_for(docket) as worker:
        await ends(worker.run_until_finished())
    await execution.sync()

    assert execution.state == ExecutionState.COMPLETED
